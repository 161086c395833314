// Command pstest serves the fake of Google Cloud Pub/Sub from Google's Go client on a port of loopback, until SIGINT or SIGTERM.
//
// Its own call /headrace.Pstest/Acknowledged takes the path of a subscription, a StringValue, and returns the number of its messages that
// were acknowledged, an Int64Value.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// acknowledgements has the ids of the acknowledged messages of each subscription.
type acknowledgements struct {
	lock sync.Mutex
	ids  map[string]map[string]struct{}
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: pstest PORT")
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	acknowledged := &acknowledgements{ids: map[string]map[string]struct{}{}}
	recorder := pstest.ServerReactorOption{FuncName: "Acknowledge", Reactor: acknowledged}
	server := pstest.NewServerWithCallback(port, acknowledged.register, recorder)
	defer server.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
}

// React records an acknowledgement, and leaves its handling to the fake.
func (a *acknowledgements) React(request any) (bool, any, error) {
	answered := request.(*pubsubpb.AcknowledgeRequest)
	a.lock.Lock()
	defer a.lock.Unlock()
	ids := a.ids[answered.Subscription]
	if ids == nil {
		ids = map[string]struct{}{}
		a.ids[answered.Subscription] = ids
	}
	for _, id := range answered.AckIds {
		ids[id] = struct{}{}
	}
	return false, nil, nil
}

func (a *acknowledgements) count(subscription string) int64 {
	a.lock.Lock()
	defer a.lock.Unlock()
	return int64(len(a.ids[subscription]))
}

func (a *acknowledgements) register(server *grpc.Server) {
	handler := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		subscription := &wrapperspb.StringValue{}
		if err := decode(subscription); err != nil {
			return nil, err
		}
		return wrapperspb.Int64(a.count(subscription.Value)), nil
	}
	methods := []grpc.MethodDesc{{MethodName: "Acknowledged", Handler: handler}}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "headrace.Pstest", HandlerType: (*any)(nil), Methods: methods}, a)
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, "error:", reason)
	os.Exit(1)
}
