package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken from below the range that Linux gives to outgoing connections
// (32768 and up): a port of that range may be in use again before the program
// that it was meant for listens.
const firstPort, lastPort = 20000, 32000

var ports struct {
	mu   sync.Mutex
	next int
}

// freePort finds a port on loopback that nobody listens on, and that this
// process has not given out yet.
func freePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.next == 0 {
		// Fleets side by side start at different places.
		ports.next = firstPort + rand.IntN(lastPort-firstPort)
	}
	for range lastPort - firstPort {
		port := ports.next
		if ports.next++; ports.next == lastPort {
			ports.next = firstPort
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no port on 127.0.0.1 between 20000 and 32000 is free")
}

func freePorts(n int) ([]int, error) {
	list := make([]int, n)
	for i := range list {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		list[i] = port
	}
	return list, nil
}
