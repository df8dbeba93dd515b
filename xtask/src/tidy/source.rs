//! Takes a Rust file apart into code, comments and string literals.
//!
//! A rule about code must not fire on prose, nor a rule about SQL on a comment that explains it. A
//! real parser would do, but is slow to build and forgets comments; telling these three apart needs
//! only the lexical rules: nested comments, raw strings, and lifetimes that look like characters.
//!
//! It refuses to understand more than that: no syntax, no names, no macros.

/// A Rust file, taken apart.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) lines: Vec<Line>,
    pub(super) literals: Vec<Literal>,
}

/// One line: its code with the contents of literals left out, and its comments.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) code: String,
    pub(super) comment: String,
    /// Whether it lies in the file's own `mod tests`.
    pub(super) in_tests: bool,
}

/// A string literal and the line (from 1) on which it begins.
#[derive(Debug, Default)]
pub(super) struct Literal {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let mut scanner = Scanner { rest: text, source: Self::default() };
        scanner.source.lines.push(Line::default());
        while scanner.step() {}
        scanner.source.mark_tests();
        scanner.source
    }

    /// The lines with their numbers, from 1.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether the line of this number lies in the file's own `mod tests`.
    pub(super) fn is_in_tests(&self, line: usize) -> bool {
        self.lines.get(line - 1).is_some_and(|line| line.in_tests)
    }

    /// By custom the tests' module is the last item: what follows its attribute is tests.
    fn mark_tests(&mut self) {
        let begins = self.lines.windows(2).position(|pair| {
            let module = pair[1].code.trim_start();
            pair[0].code.contains("#[cfg(")
                && super::has_word(&pair[0].code, "test")
                && module.starts_with("mod ")
                && module.ends_with('{')
        });
        for line in self.lines.iter_mut().skip(begins.unwrap_or(usize::MAX)) {
            line.in_tests = true;
        }
    }
}

struct Scanner<'a> {
    rest: &'a str,
    source: Source,
}

impl<'a> Scanner<'a> {
    /// Takes the next piece; false at the end.
    fn step(&mut self) -> bool {
        let rest = self.rest;
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            self.comment(end);
        } else if rest.starts_with("/*") {
            self.comment(block_comment(rest));
        } else if let Some(hashes) = self.raw_string() {
            let opening = rest.find('"').map_or(0, |quote| quote + 1);
            let closing = format!("\"{}", "#".repeat(hashes));
            let length = rest[opening..].find(&closing).unwrap_or(rest.len() - opening);
            self.literal(opening, length, closing.len());
        } else if let Some(body) = rest.strip_prefix('"') {
            self.literal(1, escaped(body, '"'), 1);
        } else if let Some(length) = character(rest) {
            self.source.last().code.push_str("' '");
            self.rest = &rest[length..];
        } else if let Some(letter) = rest.chars().next() {
            self.take(letter.len_utf8(), |line, letter| line.code.push(letter));
        } else {
            return false;
        }
        true
    }

    /// The number of `#` of the raw string that begins here, if one does.
    fn raw_string(&mut self) -> Option<usize> {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let before = self.source.last().code.chars().next_back();
        if before.is_some_and(is_name) {
            return None;
        }
        let marked = self.rest.trim_start_matches(['b', 'c']);
        let opening = marked.strip_prefix('r')?;
        let quote = opening.trim_start_matches('#');
        let short = self.rest.len() - marked.len() <= 1;
        (short && quote.starts_with('"')).then_some(opening.len() - quote.len())
    }

    fn comment(&mut self, length: usize) {
        self.take(length, |line, letter| line.comment.push(letter));
    }

    fn literal(&mut self, opening: usize, length: usize, closing: usize) {
        let text = self.rest[opening..opening + length].to_owned();
        let line = self.source.lines.len();
        self.source.last().code.push_str("\"\"");
        self.source.literals.push(Literal { line, text });
        self.take((opening + length + closing).min(self.rest.len()), |_, _| {});
    }

    /// Moves on by `length` bytes, giving each letter to its line.
    fn take(&mut self, length: usize, mut keep: impl FnMut(&mut Line, char)) {
        let (taken, rest): (&'a str, &'a str) = self.rest.split_at(length);
        for letter in taken.chars() {
            if letter == '\n' {
                self.source.lines.push(Line::default());
            } else {
                keep(self.source.last(), letter);
            }
        }
        self.rest = rest;
    }
}

impl Source {
    fn last(&mut self) -> &mut Line {
        self.lines.last_mut().expect("a source has at least one line")
    }
}

/// The length of the block comment that begins here, with those inside it.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(['/', '*']) {
        at += found;
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length up to the first `end` that no backslash escapes.
fn escaped(text: &str, end: char) -> usize {
    let mut is_escape = false;
    for (at, letter) in text.char_indices() {
        if letter == end && !is_escape {
            return at;
        }
        is_escape = letter == '\\' && !is_escape;
    }
    text.len()
}

/// The length of the character literal that begins here; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        return Some((escaped(body, '\'') + 2).min(text.len()));
    }
    body[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

#[cfg(test)]
mod tests;
