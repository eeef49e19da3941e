// Package pkg stands outside the top level.
package pkg
