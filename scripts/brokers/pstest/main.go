// Command pstest serves the fake of Google Cloud Pub/Sub from Google's Go client on a port of loopback, until SIGINT or SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: pstest PORT")
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	server := pstest.NewServerWithPort(port)
	defer server.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, "error:", reason)
	os.Exit(1)
}
