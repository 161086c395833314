// Command kfake serves a fake Kafka cluster of one broker on a port of loopback, until SIGINT or SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: kfake PORT")
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	cluster, err := kfake.NewCluster(kfake.Ports(port), kfake.NumBrokers(1), kfake.DefaultNumPartitions(4))
	if err != nil {
		fail(err)
	}
	defer cluster.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, "error:", reason)
	os.Exit(1)
}
