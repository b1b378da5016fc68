package query

import (
	"context"
	"fmt"
)

const (
	// smallResponse is the decoded size in bytes up to which responses need no permission.
	// A response for 10,000 clusters is about as large.
	smallResponse = 1 << 20
	// maxDecodedBytes is the largest decoded size of a response, and of the joined responses of
	// the endpoints of a source.
	maxDecodedBytes = 48 << 20
	// maxLargeResponses is the number of larger responses that the process decodes at once.
	maxLargeResponses = 2
)

// largeResponses holds an element for each large response that is being decoded. All
// sources of the process share it: together they must not exceed its memory.
var largeResponses = make(chan struct{}, maxLargeResponses)

// reservation is the memory of one response while it is decoded.
type reservation struct {
	ctx   context.Context
	bytes int
	large bool // has an element in largeResponses
}

// grow adds n bytes. A response that becomes large waits until few enough others are being
// decoded, or until its deadline.
func (r *reservation) grow(n int) *Error {
	r.bytes += n
	switch {
	case r.bytes > maxDecodedBytes:
		return decodedTooLarge("the decoded result exceeds")
	case r.bytes <= smallResponse || r.large:
		return nil
	}
	select {
	case largeResponses <- struct{}{}:
		r.large = true
		return nil
	case <-r.ctx.Done():
		return transportError(r.ctx.Err())
	}
}

// decodedTooLarge returns the error of a result of more than maxDecodedBytes.
func decodedTooLarge(what string) *Error {
	return &Error{Reason: ReasonTooLarge, Message: fmt.Sprintf("%s %d MiB: aggregate the query", what, maxDecodedBytes>>20)}
}

func (r *reservation) release() {
	if r.large {
		<-largeResponses
		r.large = false
	}
}
