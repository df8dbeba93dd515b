//! The lexical corners that a line-by-line search gets wrong.

use super::Source;

fn code(text: &str) -> Vec<String> {
    Source::parse(text).lines.into_iter().map(|line| line.code.trim_end().to_owned()).collect()
}

fn literals(text: &str) -> Vec<(usize, String)> {
    let literals = Source::parse(text).literals;
    literals.into_iter().map(|literal| (literal.line, literal.text)).collect()
}

#[test]
fn comments_are_not_code() {
    assert_eq!(code("a; // b\n/* c /* d */\n e */ f;"), ["a;", "", " f;"]);
    assert_eq!(Source::parse("a; // b").lines[0].comment, "// b");
}

#[test]
fn strings_are_found_with_their_first_line() {
    for (text, expected) in [
        (r#"f("a // b")"#, (1, "a // b")),
        (r#"f("a \" b")"#, (1, r#"a \" b"#)),
        (r#"f("a \\"); g"#, (1, r"a \\")),
        ("\nf(\"a\nb\")", (2, "a\nb")),
        ("f(r\"a\\\")", (1, "a\\")),
        ("f(r#\"a \" b\"#)", (1, "a \" b")),
        ("f(br##\"a\"# b\"##)", (1, "a\"# b")),
    ] {
        assert_eq!(literals(text), [(expected.0, expected.1.to_owned())], "{text}");
    }
}

#[test]
fn characters_and_lifetimes_do_not_open_strings() {
    for text in ["f('\"', x)", r"f('\'', x)", "fn f<'a>(x: &'a str)", r"f('\u{1F600}')"] {
        assert!(literals(text).is_empty(), "{text}");
    }
    assert_eq!(literals("f('\"', \"x\")"), [(1, "x".to_owned())]);
}

#[test]
fn names_that_end_in_r_do_not_open_raw_strings() {
    assert_eq!(literals("bar\"x\""), [(1, "x".to_owned())]);
}

#[test]
fn tests_module_is_marked_to_the_end() {
    let source = Source::parse("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\n");
    let marked: Vec<_> = source.lines.iter().map(|line| line.in_tests).collect();
    assert_eq!(marked, [false, true, true, true, true, true]);
    let outside = Source::parse("#[cfg(test)]\nmod tests;\nfn a() {}");
    assert!(!outside.is_in_tests(3));
}
