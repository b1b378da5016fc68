// Package query is the only client of Prometheus, Thanos and Mimir. It runs instant
// and range queries with the authentication, limits and timeouts of a MetricsSource,
// retries transient failures, and keeps warnings apart from infos.
package query
