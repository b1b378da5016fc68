// Package mixin tests config/prometheus/mixin.libsonnet.
package mixin
