// Package e2e has tests only, one of which carries the comment.
package e2e
