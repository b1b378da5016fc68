// Package query is the one client of Prometheus, Thanos and Mimir. It asks instant
// queries with the user's authentication, limits and time-outs, retries only what
// a retry can mend, and keeps warnings apart from infos.
package query
