// Etcdload measures etcd the way bench-paxos measures consensus: so many puts outstanding, for so long, of values of so
// many bytes, with etcd's own client.
//
//	etcdload -endpoint 127.0.0.1:2379 -in-flight 64 -size 100 -seconds 5 -connections 4
//
// Prints one JSON object. All puts go to the endpoint given (the leader is fastest), each worker with a key of its own.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

type result struct {
	Puts      int     `json:"puts"`
	InAll     int     `json:"puts_in_all"` // with those before the measurement
	PerSecond float64 `json:"per_second"`
	P50us     float64 `json:"p50_us"`
	P99us     float64 `json:"p99_us"`
	Errors    int     `json:"errors"`
}

type worker struct {
	latencies   []float64
	all, errors int
}

func (w *worker) run(client *clientv3.Client, key, value string, begin, end time.Time) {
	for {
		called := time.Now()
		if called.After(end) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := client.Put(ctx, key, value)
		cancel()
		answered := time.Now()
		if err != nil {
			w.errors++
			continue
		}
		w.all++
		if called.After(begin) && answered.Before(end) {
			w.latencies = append(w.latencies, float64(answered.Sub(called).Microseconds()))
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "etcdload:", err)
	os.Exit(1)
}

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:2379", "client address of a member")
	inFlight := flag.Int("in-flight", 1, "puts outstanding")
	size := flag.Int("size", 100, "bytes of a value")
	seconds := flag.Float64("seconds", 5, "length of the measurement")
	warmUp := flag.Float64("warm-up", 0.5, "seconds before it")
	connections := flag.Int("connections", 1, "over which the workers are spread")
	flag.Parse()
	clients := make([]*clientv3.Client, *connections)
	for i := range clients {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second})
		if err != nil {
			fail(err)
		}
		defer client.Close()
		clients[i] = client
	}
	begin := time.Now().Add(time.Duration(*warmUp * float64(time.Second)))
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	workers, value := make([]worker, *inFlight), strings.Repeat("x", *size)
	var all sync.WaitGroup
	for i := range workers {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			workers[i].run(clients[i%len(clients)], fmt.Sprintf("bench%d", i), value, begin, end)
		}(i)
	}
	all.Wait()
	var latencies []float64
	total := result{}
	for i := range workers {
		latencies = append(latencies, workers[i].latencies...)
		total.Errors += workers[i].errors
		total.InAll += workers[i].all
	}
	if len(latencies) == 0 {
		fail(fmt.Errorf("no put was answered, %d failed", total.Errors))
	}
	sort.Float64s(latencies)
	total.Puts, total.PerSecond = len(latencies), float64(len(latencies)) / *seconds
	total.P50us, total.P99us = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	text, _ := json.Marshal(total)
	fmt.Println(string(text))
}
