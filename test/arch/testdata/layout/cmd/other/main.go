// This command says something else.
package main

func main() {}
