// A comment on a test file is free.
package pickers_test
