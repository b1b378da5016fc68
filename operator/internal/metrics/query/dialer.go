package query

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// metadataAddresses are addresses outside of the link-local ranges at which clouds serve
// the credentials of a machine.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// nat64 is the prefix that translates the last four bytes to an IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// addressError is the error of a connection to an address that sources must not use.
type addressError struct {
	address netip.Addr
	kind    string
}

// Error returns a message for a condition.
func (e *addressError) Error() string {
	return fmt.Sprintf("the host resolves to the %s address %s, which sources must not use", e.kind, e.address)
}

// newDialer returns a dialer that checks each address after name resolution, right before
// it connects: a name that resolves to another address the second time gains nothing.
func newDialer(allowLoopback bool) *net.Dialer {
	return &net.Dialer{
		Timeout: 10 * time.Second, KeepAlive: 30 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			target, err := netip.ParseAddrPort(address)
			if err != nil {
				return errors.New("the address to connect to can't be parsed")
			}
			return checkAddress(target.Addr(), allowLoopback)
		},
	}
}

// checkAddress returns an error for addresses that serve the machine of the operator and
// not the network: those of cloud metadata, link-local and loopback addresses.
func checkAddress(address netip.Addr, allowLoopback bool) error {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		address = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	switch {
	case slices.Contains(metadataAddresses, address):
		return &addressError{address, "cloud metadata"}
	case address.IsLinkLocalUnicast():
		return &addressError{address, "link-local"}
	case address.IsMulticast():
		return &addressError{address, "multicast"}
	case !allowLoopback && (address.IsLoopback() || address.IsUnspecified()):
		return &addressError{address, "loopback"}
	}
	return nil
}
