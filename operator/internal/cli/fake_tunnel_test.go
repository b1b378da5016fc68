package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forwardPort serves pods/portforward as the API server and a kubelet do: each data stream is
// connected to the address. Without an address, nothing listens in the pod.
func forwardPort(w http.ResponseWriter, req *http.Request, address string) {
	if _, err := httpstream.Handshake(req, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // the first attempt, with WebSockets; Handshake has responded
	}
	streams := make(chan httpstream.Stream, 2)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() { <-replied; streams <- s }()
		return nil
	})
	if connection == nil {
		return
	}
	defer func() { _ = connection.Close() }()
	byType := map[string]httpstream.Stream{}
	for range 2 {
		s := <-streams
		byType[s.Headers().Get(corev1.StreamType)] = s
	}
	data, failures := byType[corev1.StreamTypeData], byType[corev1.StreamTypeError]
	target, err := net.Dial("tcp", address)
	if err != nil {
		_, _ = fmt.Fprintf(failures, "dial in the pod: connection refused")
		_ = failures.Close()
		<-connection.CloseChan()
		return
	}
	_ = failures.Close()
	go func() { _, _ = io.Copy(target, data); _ = target.Close() }()
	_, _ = io.Copy(data, target)
}

// serveSubresource serves the subresources of pods and ServiceAccounts.
func (h *fakeHub) serveSubresource(w http.ResponseWriter, req *http.Request, name, subresource string) {
	switch {
	case h.lists("forbidden", "/"+subresource):
		writeStatus(w, http.StatusForbidden, "Forbidden", `User "me" cannot create `+subresource, "")
	case subresource == "token":
		writeJSON(w, http.StatusCreated, map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": map[string]any{"token": "right"}})
	case strings.Contains(name, "broken"):
		forwardPort(w, req, "")
	default:
		forwardPort(w, req, h.operator)
	}
}
