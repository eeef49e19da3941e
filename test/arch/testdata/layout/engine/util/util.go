// Package util has a name that says nothing.
package util
