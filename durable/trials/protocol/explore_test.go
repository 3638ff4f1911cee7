package protocol

import "fmt"

// space is what an exploration has seen: each state once, up to who is who.
type space struct {
	world  world
	states []state
	parent []int32
	edges  [][2]int32 // moves by which nothing goes wrong

	taken map[string]bool // the moves that were there

	broken string // the promise that was broken, "" for none
	path   []string
}

// explore goes from the first state to all others, the nearest first, and ends at the
// first promise that is broken: the moves to it are as few as can be.
func explore(w world) *space {
	sp := &space{world: w, taken: map[string]bool{}}
	seen := map[state]int32{}
	add := func(s state, from int32) int32 {
		s = canon(s, &w)
		i, ok := seen[s]
		if !ok {
			i = int32(len(sp.states))
			seen[s] = i
			sp.states, sp.parent = append(sp.states, s), append(sp.parent, from)
		}
		return i
	}
	add(first(&w), -1)
	m := moves{world: &w, faults: &w.faults}
	for at := int32(0); int(at) < len(sp.states); at++ {
		s := sp.states[at]
		if broken := s.check(); broken != "" && (w.watch == "" || w.watch == broken) {
			sp.broken = broken
			sp.path = sp.tell(at, "")
			return sp
		}
		for _, st := range m.from(&s) {
			sp.taken[st.what] = true
			if st.broken != "" {
				sp.broken, sp.path = st.broken, sp.tell(at, st.broken)
				return sp
			}
			to := add(st.to, at)
			if st.kind != fault && to != at {
				sp.edges = append(sp.edges, [2]int32{at, to})
			}
		}
	}
	if at := sp.stuck(); at >= 0 && (w.watch == "" || w.watch == neverEnds) {
		sp.broken, sp.path = neverEnds, sp.tell(at, "")
	}
	return sp
}

const neverEnds = "an accepted job never ends"

func first(w *world) state {
	s := state{clock: w.start, left: w.left}
	for i := range s.workers {
		s.workers[i].lease = true
	}
	return s
}

// stuck returns the nearest state from which, though nothing more goes wrong, the jobs
// that were accepted cannot end; -1 if there is none.
func (sp *space) stuck() int32 {
	into := make([]int32, len(sp.states)+1) // where the edges into a state begin
	for _, e := range sp.edges {
		into[e[1]+1]++
	}
	for i := range sp.states {
		into[i+1] += into[i]
	}
	from, next := make([]int32, len(sp.edges)), append([]int32(nil), into...)
	for _, e := range sp.edges {
		from[next[e[1]]] = e[0]
		next[e[1]]++
	}
	ends := make([]bool, len(sp.states))
	var todo []int32
	for i := range sp.states {
		if sp.states[i].over(&sp.world) {
			ends[i], todo = true, append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, f := range from[into[at]:into[at+1]] {
			if !ends[f] {
				ends[f], todo = true, append(todo, f)
			}
		}
	}
	for i, ok := range ends {
		if !ok {
			return int32(i)
		}
	}
	return -1
}

// over reports whether all that was accepted has ended, but for what nobody runs.
func (s *state) over(w *world) bool {
	for j := range s.jobs {
		if job := &s.jobs[j]; job.adding == accepted && !job.done && !job.canceled && !w.isNobodys(j) {
			return false
		}
	}
	return true
}

// tell returns the moves to a state in plain words, and then one that breaks a promise,
// if there is one. States are kept up to who is who, so the path is walked once more.
func (sp *space) tell(at int32, broken string) (path []string) {
	var way []int32
	for i := at; i > 0; i = sp.parent[i] {
		way = append(way, i)
	}
	s := first(&sp.world)
	m := moves{world: &sp.world, faults: &sp.world.faults, tell: true}
	walk := func(fits func(*step) bool) {
		for _, st := range m.from(&s) {
			if fits(&st) {
				path = append(path, fmt.Sprintf("%2d. %s", len(path)+1, st.what))
				s = st.to
				return
			}
		}
		panic("the path is not one")
	}
	for i := len(way) - 1; i >= 0; i-- {
		walk(func(st *step) bool { return st.to.like(&sp.states[way[i]], &sp.world) })
	}
	if broken != "" {
		walk(func(st *step) bool { return st.broken == broken })
	}
	return path
}

// stepTo is a move of the smaller models.
type stepTo[S any] struct {
	to    S
	what  string
	fault bool
}

// searched is a state of them.
type searched[S any] interface {
	comparable
	canon() S      // of the states that differ only in who is who, one
	check() string // which promise it breaks
	ended() bool   // all has come to its end
}

// search goes through all states, and returns which promise is broken first, and how.
func search[S searched[S]](start S, from func(S) []stepTo[S]) (broken string, path []string, count int) {
	type origin struct {
		from int
		what string
	}
	index, states, origins := map[S]int{start: 0}, []S{start}, []origin{{-1, ""}}
	var into [][]int32 // from where each is reached though nothing goes wrong
	tell := func(at int) (path []string) {
		for ; origins[at].from >= 0; at = origins[at].from {
			path = append([]string{origins[at].what}, path...)
		}
		return path
	}
	for at := 0; at < len(states); at++ {
		into = append(into, nil)
		if broken := states[at].check(); broken != "" {
			return broken, tell(at), len(states)
		}
		for _, st := range from(states[at]) {
			next := st.to.canon()
			to, ok := index[next]
			if !ok {
				to = len(states)
				index[next] = to
				states, origins = append(states, next), append(origins, origin{at, st.what})
			}
			if !st.fault && to != at {
				for len(into) <= to {
					into = append(into, nil)
				}
				into[to] = append(into[to], int32(at))
			}
		}
		into = into[:max(len(into), at+1)]
	}
	ends := make([]bool, len(states))
	var todo []int32
	for i := range states {
		if ends[i] = states[i].ended(); ends[i] {
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range into[at] {
			if !ends[from] {
				ends[from], todo = true, append(todo, from)
			}
		}
	}
	for i, ok := range ends {
		if !ok {
			return neverEnds, tell(i), len(states)
		}
	}
	return "", nil, len(states)
}
