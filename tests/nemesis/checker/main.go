// Checker says whether a recorded history of a register service is linearizable.
//
//	checker [-timeout 60s] [-picture FILE.html] HISTORY
//
// HISTORY has one JSON object a line: client, op (get, set or cas), key, value, old (of cas), call and return (ns),
// and what came back (result; of a set ok, of a cas ok or no). An operation whose outcome is not known has no return: it may have
// happened at any time after its call, or never. Keys are independent, and each is checked by itself.
//
// Prints one JSON object and exits with 0 when every key is linearizable, with 1 when one is not, and with 2 when the
// history cannot be read, is empty, or could not be checked in time: that is no pass.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const absent = "-"

type record struct {
	Client int     `json:"client"`
	Op     string  `json:"op"`
	Key    string  `json:"key"`
	Value  string  `json:"value"`
	Old    string  `json:"old"`
	Call   int64   `json:"call"`
	Return *int64  `json:"return"`
	Result *string `json:"result"`
}

type input struct{ op, value, old string }

// What came back; known is false when nothing did.
type output struct {
	known  bool
	result string
}

var register = porcupine.Model{
	Init: func() interface{} { return absent },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		now, asked, answer := state.(string), in.(input), out.(output)
		switch asked.op {
		case "get":
			return !answer.known || answer.result == now, now
		case "set":
			return true, asked.value
		default: // cas
			if now == asked.old {
				return !answer.known || answer.result == "ok", asked.value
			}
			return !answer.known || answer.result == "no", now
		}
	},
	DescribeOperation: func(in, out interface{}) string {
		asked, answer := in.(input), out.(output)
		result := "?"
		if answer.known {
			result = answer.result
		}
		switch asked.op {
		case "get":
			return "get -> " + result
		case "set":
			return "set " + asked.value + " -> " + result
		}
		return "cas " + asked.old + " " + asked.value + " -> " + result
	},
}

func read(path string) (map[string][]porcupine.Operation, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	keys, count := map[string][]porcupine.Operation{}, 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, 0, fmt.Errorf("line %d: %v", count+1, err)
		}
		if r.Op != "get" && r.Op != "set" && r.Op != "cas" {
			return nil, 0, fmt.Errorf("line %d: no operation %q", count+1, r.Op)
		}
		count++
		operation := porcupine.Operation{ClientId: r.Client, Input: input{r.Op, r.Value, r.Old}, Call: r.Call}
		if r.Return != nil && r.Result != nil {
			operation.Output, operation.Return = output{true, *r.Result}, *r.Return
		} else if r.Op == "get" {
			continue // it changed nothing, and nobody saw its answer
		} else {
			operation.Output, operation.Return = output{}, math.MaxInt64
		}
		keys[r.Key] = append(keys[r.Key], operation)
	}
	return keys, count, lines.Err()
}

type report struct {
	Operations  int      `json:"operations"`
	Keys        int      `json:"keys"`
	Violations  []string `json:"violations"` // keys
	OutOfTime   []string `json:"out_of_time"`
	Seconds     float64  `json:"seconds"`
	PictureFile string   `json:"picture,omitempty"`
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for one key")
	picture := flag.String("picture", "", "where to draw the first key that is not linearizable")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	keys, count, err := read(flag.Arg(0))
	if err == nil && count == 0 {
		err = fmt.Errorf("no operation in it: nothing was checked")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", flag.Arg(0), err)
		os.Exit(2)
	}
	begin := time.Now()
	result := report{Operations: count, Keys: len(keys), Violations: []string{}, OutOfTime: []string{}}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		verdict, info := porcupine.CheckOperationsVerbose(register, keys[name], *timeout)
		if verdict == porcupine.Unknown {
			result.OutOfTime = append(result.OutOfTime, name)
		}
		if verdict != porcupine.Illegal {
			continue
		}
		result.Violations = append(result.Violations, name)
		if *picture != "" && result.PictureFile == "" && porcupine.VisualizePath(register, info, *picture) == nil {
			result.PictureFile = *picture
		}
	}
	result.Seconds = time.Since(begin).Seconds()
	text, _ := json.Marshal(result)
	fmt.Println(string(text))
	switch {
	case len(result.Violations) > 0:
		os.Exit(1)
	case len(result.OutOfTime) > 0:
		os.Exit(2)
	}
}
