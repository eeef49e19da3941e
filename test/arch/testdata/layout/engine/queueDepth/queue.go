// Package queueDepth has a capital in its name.
package queueDepth
