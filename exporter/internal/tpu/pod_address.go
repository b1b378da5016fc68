package tpu

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errNoAddress is the error of a process in a network namespace without an address that the
// exporter can reach.
var errNoAddress = errors.New("the pod of a process that holds a TPU has no IP address")

// serviceHost returns the address of the services of a process. A process in the exporter's
// network namespace has localhost, any other process the first address of its namespace,
// which is the pod IP. If the namespaces cannot be compared and no address is found,
// serviceHost returns localhost and an error. In a namespace known to be another one,
// localhost would be a different process: the host is empty then.
func (s *Source) serviceHost(dir string) (string, error) {
	own, ownErr := os.Readlink(filepath.Join(s.options.Procfs, "self/ns/net"))
	namespace, err := os.Readlink(filepath.Join(dir, "ns/net"))
	isComparable := ownErr == nil && err == nil
	if isComparable && own == namespace {
		return "localhost", nil
	}
	address, err := podAddress(dir)
	switch {
	case err == nil:
		return address.String(), nil
	case isComparable:
		return "", err
	}
	return "localhost", err
}

// podAddress returns the first IPv4 address, else the first global IPv6 address of the network
// namespace of the process in a procfs directory. The kernel writes both files, so a workload
// cannot send the exporter to another address.
func podAddress(dir string) (netip.Addr, error) {
	v4, err := readProcfs(filepath.Join(dir, "net/fib_trie"))
	if address, ok := firstIPv4(v4); ok {
		return address, nil
	}
	v6, err6 := readProcfs(filepath.Join(dir, "net/if_inet6"))
	if address, ok := firstIPv6(v6); ok {
		return address, nil
	}
	if errors.Is(err6, fs.ErrNotExist) {
		err6 = nil // IPv6 is disabled
	}
	return netip.Addr{}, errors.Join(errNoAddress, err, err6)
}

// firstIPv4 returns the first address in the format of net/fib_trie that is no loopback
// address. A line such as "/32 host LOCAL" follows an address of the namespace.
func firstIPv4(text []byte) (netip.Addr, bool) {
	candidate, lines := "", bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 2 && words[0] == "|--":
			candidate = words[1]
		case slices.Contains(words, "host") && slices.Contains(words, "LOCAL"):
			if address, err := netip.ParseAddr(candidate); err == nil && !address.IsLoopback() {
				return address, true
			}
		}
	}
	return netip.Addr{}, false
}

// Flags of an IPv6 address that other hosts cannot reach.
const (
	ifaDADFailed = 0x08 // another host has the address
	ifaTentative = 0x40 // the kernel still checks whether another host has the address
)

// firstIPv6 returns the first address of global scope in the format of net/if_inet6. The
// columns are the address, the number of the interface, the length of the prefix, the scope,
// the flags and the name of the interface.
func firstIPv6(text []byte) (netip.Addr, bool) {
	for line := range strings.Lines(string(text)) {
		columns := strings.Fields(line)
		if len(columns) < 6 || columns[3] != "00" {
			continue
		}
		bits, err := hex.DecodeString(columns[0])
		flags, flagsErr := strconv.ParseUint(columns[4], 16, 32)
		address, _ := netip.AddrFromSlice(bits) // the zero value is no IPv6 address
		if err == nil && flagsErr == nil && address.Is6() && !address.IsLoopback() && flags&(ifaDADFailed|ifaTentative) == 0 {
			return address, true
		}
	}
	return netip.Addr{}, false
}
