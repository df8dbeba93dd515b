//! JSON as people read it: indented, without being parsed.
//!
//! It refuses to touch anything but the space between tokens: integers above 2^53, the order of
//! keys and the spelling of numbers stay as they were enqueued. What fits on a line stays on one.

const LINE_CHARS_MAX: usize = 80;
const INDENT: &str = "  ";

/// Indents a JSON text that is known to be valid.
pub fn pretty(text: &str) -> String {
    if text.len() <= LINE_CHARS_MAX && !text.contains('\n') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|c| c.is_whitespace()).is_some() {}
                if let Some(close) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(INDENT, depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_documents_stay_on_one_line() {
        assert_eq!(pretty(r#"{"a":[1,2]}"#), r#"{"a":[1,2]}"#);
    }

    #[test]
    fn long_documents_are_indented_and_otherwise_unchanged() {
        let pad = "x,{\\\"}".repeat(20);
        let text = format!(r#"{{"n":12345678901234567890123, "e":[], "p":["{pad}",1e5]}}"#);
        let expected = format!(
            "{{\n  \"n\": 12345678901234567890123,\n  \"e\": [],\n  \"p\": [\n    \"{pad}\",\n    1e5\n  ]\n}}"
        );
        assert_eq!(pretty(&text), expected);
    }
}
