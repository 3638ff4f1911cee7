package purgatory

import "cmp"

// The waiters of a Threshold are a treap: a binary search tree by value and, for equal
// values, by the order of parking, and at the same time a heap by random priorities. So
// its depth is O(log n), whatever the order in which waiters come (Seidel and Aragon,
// "Randomized Search Trees", Algorithmica 1996).
//
// A treap is split at a value in O(log n), which no tree of gods can do, nor a heap: with
// these, each waiter that a rise of the number ends would cost O(log n) of its own.

// before reports whether the place of w is before that of a waiter for v with number seq.
func (w *waiter[V]) before(v V, seq uint64) bool {
	if c := cmp.Compare(w.v, v); c != 0 {
		return c < 0
	}
	return w.seq < seq
}

// split returns the part of the tree before v and seq, and the rest.
func split[V cmp.Ordered](root *waiter[V], v V, seq uint64) (left, right *waiter[V]) {
	l, r := &left, &right // where the next part of each hangs
	for root != nil {
		if root.before(v, seq) {
			*l, l, root = root, &root.right, root.right
		} else {
			*r, r, root = root, &root.left, root.left
		}
	}
	*l, *r = nil, nil
	return left, right
}

// join returns the tree of both. All of left must be before all of right.
func join[V cmp.Ordered](left, right *waiter[V]) (root *waiter[V]) {
	at := &root
	for left != nil && right != nil {
		if left.priority > right.priority {
			*at, at, left = left, &left.right, left.right
		} else {
			*at, at, right = right, &right.left, right.left
		}
	}
	*at = left
	if left == nil {
		*at = right
	}
	return root
}

// insert adds w to the tree.
func insert[V cmp.Ordered](root **waiter[V], w *waiter[V]) {
	for *root != nil && (*root).priority >= w.priority {
		if (*root).before(w.v, w.seq) {
			root = &(*root).right
		} else {
			root = &(*root).left
		}
	}
	w.left, w.right = split(*root, w.v, w.seq)
	*root = w
}

// remove takes w out of the tree, and reports false if it is not in it.
func remove[V cmp.Ordered](root **waiter[V], w *waiter[V]) bool {
	for *root != w {
		switch {
		case *root == nil:
			return false
		case (*root).before(w.v, w.seq):
			root = &(*root).right
		default:
			root = &(*root).left
		}
	}
	*root = join(w.left, w.right)
	w.left, w.right = nil, nil
	return true
}

// inOrder appends the waiters of a tree to ws, in order, and takes the tree apart: one
// that a user still holds must not hold the others.
func inOrder[V cmp.Ordered](root *waiter[V], ws []*waiter[V]) []*waiter[V] {
	if root == nil {
		return ws
	}
	ws = append(inOrder(root.left, ws), root)
	ws = inOrder(root.right, ws)
	root.left, root.right = nil, nil
	return ws
}
