//! What commands print, without what must differ between two stores.

use super::pair::Side;

/// What was printed, without what must differ: places, ids by their order, times, lengths of time, and widths.
pub fn normal(text: &str, side: &Side) -> String {
    let [option, url] = &side.place;
    let text = text.replace(&format!("{option} {url}"), "WHERE");
    let mut ids: Vec<String> = Vec::new();
    let mut out = String::new();
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let is_begin = at == 0 || !chars[at - 1].is_alphanumeric();
        let length = |is: fn(char) -> bool| rest.iter().take_while(|c| is(**c)).count();
        if is_begin && is_id(rest) {
            let id: String = rest[..36].iter().collect();
            let number = ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            });
            out.push_str("ID");
            out.push_str(&number.to_string());
            at += 36;
        } else if is_begin && is_secret(rest) {
            out.push_str("SECRET");
            at += length(|c| c.is_ascii_alphanumeric() || "_+/=".contains(c));
        } else if is_begin && is_time(rest) {
            out.push_str("TIME");
            at += length(|c| c.is_ascii_digit() || "-:.TZ+".contains(c));
        } else if is_begin && rest[0].is_ascii_digit() {
            let word: String = rest[..length(|c| c.is_alphanumeric() || c == '.')].iter().collect();
            let is_span = word.ends_with(|c| "smhd".contains(c))
                && word.chars().all(|c| c.is_ascii_digit() || ".nµumshd".contains(c));
            out.push_str(match is_span {
                true => "SPAN",
                false if is_lease(&out) => "LEASE",
                false if out.ends_with("try again in ") => "SPAN",
                false if is_version(&word) => "VERSION",
                false => &word,
            });
            at += word.chars().count();
        } else {
            let is_same = out.ends_with(rest[0]);
            if !(is_same && (rest[0] == ' ' || rest[0] == '─')) {
                out.push(rest[0]);
            }
            at += 1;
        }
    }
    out.lines().map(moments).collect::<Vec<_>>().join("\n")
}

/// A line in which now is as good as a moment ago.
fn moments(line: &str) -> String {
    let line = line.trim_end().replace("just now", "now");
    let words = line.split(' ').map(|word| match word {
        "now" => "SPAN ago",
        "(now)" => "(SPAN ago)",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the number that comes is of a lease: a database counts on as it likes.
fn is_lease(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let is_second = line
        .strip_suffix(' ')
        .is_some_and(|first| !first.is_empty() && first.chars().all(|c| c.is_ascii_digit()));
    line == "token " || line.ends_with("\"token\":") || is_second
}

/// Versions of schedules begin with the microsecond in which they were made.
fn is_version(word: &str) -> bool {
    word.len() >= 16 && word.chars().all(|c| c.is_ascii_digit())
}

fn is_id(chars: &[char]) -> bool {
    chars.len() >= 36
        && chars[..36].iter().enumerate().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => *c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}

fn is_secret(chars: &[char]) -> bool {
    let begin: String = chars.iter().take(6).collect();
    begin.starts_with("tdm_") || begin == "whsec_"
}

fn is_time(chars: &[char]) -> bool {
    chars.len() >= 19
        && chars[..11].iter().enumerate().all(|(at, c)| match at {
            4 | 7 => *c == '-',
            10 => *c == 'T',
            _ => c.is_ascii_digit(),
        })
}
