//go:build planted

package flow
