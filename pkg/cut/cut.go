// Package cut names the places at which a crash may separate one side effect of a program from the next, so that a test
// can end the program at each of them. It does not know what the effects are.
//
// A program that is built as usual does nothing there: Before and After are empty. Built with the tag cut, it writes
// the name of each place to the file that CHIFFON_CUT_STEPS names, and kills itself at the place that CHIFFON_CUT_AT
// names.
package cut
