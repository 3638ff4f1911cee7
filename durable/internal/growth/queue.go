package main

import "container/heap"

// queue has the requests by time.
type queue []request

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(request)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	*q = (*q)[:last]
	return r
}

func (q *queue) put(r request) { heap.Push(q, r) }
func (q *queue) take() request { return heap.Pop(q).(request) }
