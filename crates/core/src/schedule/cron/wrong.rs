//! What is wrong with a cron expression that was refused: the field, the value, and what would be right.
//!
//! It only explains: whether an expression is taken is not decided here. So it may say little of a rare mistake, but
//! never takes what is right for wrong.

/// What any expression looks like.
const FIELDS: &str = "write five fields (minute hour day month weekday), or six with seconds first";
/// Words that stand for whole expressions.
const WORDS: &str = "@yearly, @monthly, @weekly, @daily or @hourly";

/// A field: what it is called, the numbers it takes, and the names that stand for some of them.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
    /// What it takes besides, where its values are explained.
    also: &'static str,
}

const MONTHS: &[&str] =
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const ALL: [Field; 6] = [
    Field { name: "second", least: 0, most: 59, names: &[], also: "" },
    Field { name: "minute", least: 0, most: 59, names: &[], also: "" },
    Field { name: "hour", least: 0, most: 23, names: &[], also: "" },
    Field { name: "day", least: 1, most: 31, names: &[], also: ", L for the last, or 15W" },
    Field { name: "month", least: 1, most: 12, names: MONTHS, also: ", or JAN to DEC" },
    Field { name: "weekday", least: 0, most: 7, names: DAYS, also: ", SUN to SAT, MON#2 or 5L" },
];

/// Says what is wrong, as the end of a sentence.
pub(super) fn reason(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return format!("it is empty; {FIELDS}");
    }
    if text.starts_with('@') {
        return format!("there is no {text:?}; write {WORDS}");
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let known = match fields.len() {
        5 => &ALL[1..],
        6 => &ALL[..],
        1 => return format!("it has 1 field; {FIELDS}"),
        number => return format!("it has {number} fields; {FIELDS}"),
    };
    let wrong = fields.iter().zip(known).find_map(|(given, field)| field.wrong(given));
    wrong.unwrap_or_else(|| FIELDS.to_owned())
}

impl Field {
    /// What is wrong with what was given for it.
    fn wrong(&self, given: &str) -> Option<String> {
        given.split(',').find_map(|part| self.wrong_part(&part.to_ascii_uppercase()))
    }

    fn wrong_part(&self, part: &str) -> Option<String> {
        let name = self.name;
        let (range, step) =
            part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        if let Some(step) = step
            && !step.parse::<u32>().is_ok_and(|step| step > 0)
        {
            return Some(format!(
                "the {name} {part:?} has the step {step:?}; write a number from 1 on, such as */5"
            ));
        }
        // A star, with which weekdays may narrow the days, or whatever day there is.
        let range = range.strip_prefix('+').filter(|_| name == "weekday").unwrap_or(range);
        if matches!(range, "*" | "?") {
            return None;
        }
        let Some((from, to)) = range.split_once('-') else { return self.wrong_value(range) };
        if from.is_empty() || to.is_empty() {
            return Some(format!("the {name} {range:?} lacks an end; write it like 1-5"));
        }
        if let Some(wrong) = [from, to].into_iter().find_map(|value| self.wrong_value(value)) {
            return Some(wrong);
        }
        let (from, to) = (self.number(from)?, self.number(to)?);
        (from > to).then(|| {
            let instead = format!("{from}-{},{}-{to}", self.most, self.least);
            format!("the {name} {range:?} ends before it begins; write {instead}, or turn it round")
        })
    }

    /// What is wrong with one value, with whatever stands beside it.
    fn wrong_value(&self, value: &str) -> Option<String> {
        let (name, least, most, also) = (self.name, self.least, self.most, self.also);
        let bare = match name {
            "day" if value == "L" || value == "LW" => return None,
            "day" => value.strip_suffix('W').unwrap_or(value),
            "weekday" if value == "L" => return None,
            "weekday" => match value.split_once('#') {
                Some((_, nth)) if !matches!(nth, "1" | "2" | "3" | "4" | "5" | "L") => {
                    return Some(format!(
                        "the weekday {value:?} is number {nth:?} of its month; write 1 to 5, such as MON#2"
                    ));
                }
                Some((day, _)) => day,
                None => value.strip_suffix('L').unwrap_or(value),
            },
            _ => value,
        };
        let is_right = self.number(bare).is_some_and(|number| (least..=most).contains(&number));
        (!is_right)
            .then(|| format!("the {name} {value:?} is not one; write {least} to {most}{also}"))
    }

    fn number(&self, value: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| *name == value);
        named.map(|place| place as u32 + self.least).or_else(|| value.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::cron::Cron;

    #[test]
    fn what_is_wrong_is_said_with_the_value_and_what_would_be_right() {
        for (cron, expected) in [
            ("", "it is empty; write five fields (minute hour day month weekday), or six"),
            ("nonsense", "it has 1 field; write five fields"),
            ("* * *", "it has 3 fields; write five fields"),
            ("* * * * * * *", "it has 7 fields"),
            ("@never", "there is no \"@never\"; write @yearly"),
            ("61 * * * *", "the minute \"61\" is not one; write 0 to 59"),
            ("61 * * * * *", "the second \"61\" is not one; write 0 to 59"),
            ("0 25 * * *", "the hour \"25\" is not one; write 0 to 23"),
            ("0 0 0 * *", "the day \"0\" is not one; write 1 to 31, L for the last, or 15W"),
            ("0 0 32W * *", "the day \"32W\" is not one"),
            ("0 0 L5 * *", "the day \"L5\" is not one"),
            ("0 0 * 13 *", "the month \"13\" is not one; write 1 to 12, or JAN to DEC"),
            ("0 0 * FOO *", "the month \"FOO\" is not one"),
            ("0 0 * * 9", "the weekday \"9\" is not one; write 0 to 7, SUN to SAT, MON#2 or 5L"),
            ("0 0 * * MON-", "the weekday \"MON-\" lacks an end; write it like 1-5"),
            ("0 0 * * MON#7", "the weekday \"MON#7\" is number \"7\" of its month; write 1 to 5"),
            ("a * * * *", "the minute \"A\" is not one"),
            ("1,x * * * *", "the minute \"X\" is not one"),
            ("99999999999 * * * *", "the minute \"99999999999\" is not one"),
            ("*/0 * * * *", "the minute \"*/0\" has the step \"0\"; write a number from 1 on"),
            ("1/2/3 * * * *", "the minute \"1/2/3\" has the step \"2/3\""),
            (
                "50-10 * * * *",
                "the minute \"50-10\" ends before it begins; write 50-59,0-10, or turn it round",
            ),
            ("0 0 * * FRI-MON", "the weekday \"FRI-MON\" ends before it begins; write 5-7,0-1"),
            ("* * 15W,L * *", "its day of month has `L` and `W`"),
        ] {
            let said = Cron::parse(cron).map(drop).unwrap_err().to_string();
            let opening = format!("the cron expression {cron:?} is not understood: ");
            let reason = said.strip_prefix(&opening);
            assert!(reason.is_some_and(|reason| reason.starts_with(expected)), "{cron}: {said}");
        }
    }

    #[test]
    fn what_is_right_is_not_taken_for_wrong() {
        for cron in [
            "0 9 * * MON#2",
            "0 9 * * 5L",
            "0 0 13 * +FRI",
            "0 0 ? * ?",
            "0 9 LW,3 * *",
            "*/5 1-4/2 15W JAN-MAR MON-FRI",
            "1 2 3 4 5 6",
        ] {
            assert_eq!(reason(cron), FIELDS, "{cron}");
        }
    }
}
