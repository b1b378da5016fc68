package fleet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The range is below Linux's range for outgoing connections (32768 and up). A free
// port of that range may be taken by a connection before the program listens.
const firstPort, lastPort = 20000, 32000

var ports struct {
	mu   sync.Mutex
	next int
}

// freePort returns an unused port on loopback. It returns the same port again only
// after all other ports of the range.
func freePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.next == 0 {
		// A random start keeps concurrent fleets apart.
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
	return 0, fmt.Errorf("no port on 127.0.0.1 between %d and %d is free", firstPort, lastPort)
}

// freePorts returns n unused ports.
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
