package gate

// MayHoldCopy is temporary.
func (r Rejection) MayHoldCopy() bool { return r == RejectNone || r == RejectNoRoom || r == RejectNoModel }
