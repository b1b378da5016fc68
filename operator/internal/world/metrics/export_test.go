package metrics

// EvaluateAlways makes the store evaluate each query and each rule, instead of reusing results.
func EvaluateAlways(s *Store) { s.memoizes = false }
