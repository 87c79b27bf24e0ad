// Program works off commands with a Kafka client for Go, as programs.py describes. Its argument names the client.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const patience = 60 * time.Second

type command struct {
	Do          string            `json:"do"`
	Address     string            `json:"address"`
	Topic       string            `json:"topic"`
	Codec       string            `json:"codec"`
	Acks        int               `json:"acks"`
	Idempotent  bool              `json:"idempotent"`
	Records     [][2]*string      `json:"records"`
	Burst       int               `json:"burst"`
	PauseMs     int               `json:"pause_ms"`
	WaitEvery   int               `json:"wait_every"`
	Partitions  int               `json:"partitions"`
	From        any               `json:"from"`
	Count       int               `json:"count"`
	Group       string            `json:"group"`
	Protocol    string            `json:"protocol"`
	SessionMs   int               `json:"session_ms"`
	InstanceID  string            `json:"instance_id"`
	Assignor    string            `json:"assignor"`
	Configs     map[string]string `json:"configs"`
	RetentionMs string            `json:"retention_ms"`
}

// rest pauses after each burst of records that were sent, and waits for the answers from time to time.
func (c command) rest(number int, wait func()) {
	if (number+1)%c.Burst == 0 {
		time.Sleep(time.Duration(c.PauseMs) * time.Millisecond)
	}
	if (number+1)%c.WaitEvery == 0 {
		wait()
	}
}

type client interface {
	produce(command) (any, error)
	consume(command) (any, error)
	group(command) (any, error)
	create(command) (any, error)
	manage(command) (any, error)
	remove(command) (any, error)
}

var (
	input  = bufio.NewReaderSize(os.Stdin, 1<<20)
	writes sync.Mutex
)

func say(line string) {
	writes.Lock()
	defer writes.Unlock()
	os.Stdout.WriteString(line + "\n")
}

// now is the clock that all processes of the machine share.
func now() int64 {
	var at unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return at.Nano()
}

func sayHandled(partition int32, offset int64, value []byte) {
	say(fmt.Sprintf("R %d %d %d %s", now(), partition, offset, value))
}

func sayAssigned(partitions []int32) {
	slices.Sort(partitions)
	numbers := make([]string, len(partitions))
	for i, partition := range partitions {
		numbers[i] = fmt.Sprint(partition)
	}
	say(fmt.Sprintf("A %d %s", now(), strings.Join(numbers, ",")))
}

// ended is closed when a line comes, or the end of the input.
func ended() <-chan struct{} {
	ends := make(chan struct{})
	go func() {
		input.ReadString('\n')
		close(ends)
	}()
	return ends
}

func blob(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

func text(content []byte) any {
	if content == nil {
		return nil
	}
	return string(content)
}

func main() {
	works := map[string]client{"franz-go": franz{}, "sarama": ibm{}}[os.Args[1]]
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		var c command
		var answer any
		if err = json.Unmarshal([]byte(line), &c); err == nil {
			do := map[string]func(command) (any, error){
				"produce": works.produce, "consume": works.consume, "group": works.group,
				"create": works.create, "manage": works.manage, "delete": works.remove,
			}[c.Do]
			answer, err = do(c)
		}
		said := map[string]any{"answer": answer}
		if err != nil {
			said = map[string]any{"error": err.Error()}
		}
		encoded, err := json.Marshal(said)
		if err != nil {
			panic(err)
		}
		say(string(encoded))
	}
}
