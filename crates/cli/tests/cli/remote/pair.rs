//! Two stores that go the same way, both with a server beside them, and one asked through it; what commands print on
//! both is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use tidemill_testkit::Process;

use super::normal::normal;
use crate::mill::{Ended, Mill, PATIENCE, feed, stop};

/// What only a store can do, with what it needs to be understood.
const OF_A_STORE: &[&[&str]] = &[&["serve"]];
/// What needs neither.
const OF_NEITHER: &[&[&str]] = &[&["completions", "bash"], &["config"], &["keys", "new"]];

/// A store that is asked itself, and one that is asked through its server.
pub struct Pair {
    pub sides: [Side; 2],
    servers: [Process; 2],
    /// Answers in JSON.
    json: bool,
    walked: BTreeSet<String>,
    leaves: BTreeSet<String>,
    /// Told together at the end.
    differences: Vec<String>,
}

pub struct Side {
    pub mill: Mill,
    /// The options that say where.
    pub place: [String; 2],
    pub names: BTreeMap<&'static str, String>,
}

impl Side {
    fn new(mill: Mill, option: &str, url: &str) -> Self {
        let place = [option.to_owned(), url.to_owned()];
        Self { mill, place, names: BTreeMap::new() }
    }

    fn command(&self, args: &[String]) -> Command {
        let mut command = self.mill.command(&[]);
        // Who acts on a server that asks for no credentials is `http`.
        command.env_remove("TIDEMILL_STORE").env("USER", "http").args(&self.place).args(args);
        command
    }

    pub fn run(&self, args: &[&str], stdin: &str) -> Ended {
        let named = |arg: &&str| {
            let name = arg.strip_prefix('{').and_then(|arg| arg.strip_suffix('}'));
            name.and_then(|name| self.names.get(name)).map_or(*arg, String::as_str).to_owned()
        };
        feed(self.command(&args.iter().map(named).collect::<Vec<_>>()), stdin)
    }
}

impl Pair {
    pub fn new(make: fn() -> Mill, json: bool) -> Self {
        let mills = [make(), make()];
        let started = mills.each_ref().map(|mill| mill.serve(&[]));
        let leaves = commands(&mills[0], &[]);
        let ([asked, served], [(beside, _), (before, url)]) = (mills, started);
        let store = asked.url().to_owned();
        let sides = [Side::new(asked, "--store", &store), Side::new(served, "--server", &url)];
        let (walked, differences) = (BTreeSet::new(), Vec::new());
        Self { sides, servers: [beside, before], json, walked, leaves, differences }
    }

    /// Runs a command on both; answers what they came to, which is the same.
    #[track_caller]
    pub fn run(&mut self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    #[track_caller]
    pub fn run_with(&mut self, args: &[&str], stdin: &str) -> Ended {
        self.walk(args);
        let args = if self.json { &[args, &["--json"]].concat()[..] } else { args };
        let [alone, served] = self.sides.each_ref().map(|side| {
            let ended = side.run(args, stdin);
            let [stdout, stderr] = [&ended.stdout, &ended.stderr].map(|text| normal(text, side));
            Ended { code: ended.code, stdout, stderr }
        });
        let told = |ended: &Ended| (ended.code, ended.stdout.clone(), ended.stderr.clone());
        if told(&alone) != told(&served) {
            self.differences.push(format!("{args:?}\n  store  {alone:?}\n  server {served:?}"));
        }
        alone
    }

    /// Runs what looks at everything, which a server does once a second: both come to say the same, but for figures.
    #[track_caller]
    pub fn agree(&mut self, args: &[&str]) {
        self.walk(args);
        let args = if self.json { &[args, &["--json"]].concat()[..] } else { args };
        let look = || {
            self.sides.each_ref().map(|side| {
                let ended = side.run(args, "");
                let figures = |c: char| if c.is_ascii_digit() || c == '.' { '0' } else { c };
                let [stdout, stderr] = [&ended.stdout, &ended.stderr].map(|text| {
                    let text: String = normal(text, side).chars().map(figures).collect();
                    text.split('0').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
                });
                (ended.code, stdout, stderr)
            })
        };
        let began = std::time::Instant::now();
        loop {
            let [alone, served] = look();
            if alone == served {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{args:?} {alone:?} {served:?}");
        }
    }

    /// Runs what prints an id, and keeps that under a name, `{name}` from now on.
    #[track_caller]
    pub fn name(&mut self, name: &'static str, args: &[&str]) {
        self.name_with(name, args, "");
    }

    #[track_caller]
    pub fn name_with(&mut self, name: &'static str, args: &[&str], stdin: &str) {
        self.walk(args);
        for side in &mut self.sides {
            let id = side.run(args, stdin).ok().stdout.trim().to_owned();
            side.names.insert(name, id);
        }
    }

    /// Makes a plan, and keeps its id under a name.
    #[track_caller]
    pub fn plan(&mut self, name: &'static str, args: &[&str]) {
        for side in &mut self.sides {
            let told = side.run(&[args, &["--plan", "--json"]].concat(), "").ok().stdout;
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            side.names.insert(name, told["id"].as_str().unwrap().to_owned());
        }
    }

    fn walk(&mut self, args: &[&str]) {
        let mut path = String::new();
        for arg in args {
            let longer = format!("{path} {arg}");
            let longer = longer.trim_start();
            let is_one = self.leaves.iter().any(|leaf| {
                leaf == longer
                    || leaf.strip_prefix(longer).is_some_and(|rest| rest.starts_with(' '))
            });
            if !is_one {
                break;
            }
            longer.clone_into(&mut path);
        }
        self.walked.insert(path);
    }

    /// Lets a worker of each do these jobs of a kind, one after the other; they end so.
    pub fn work(&mut self, kind: &str, exec: &str, ids: &[&str]) {
        self.walk(&["work"]);
        for side in &self.sides {
            let args = ["work", "--json", "--exec", exec, "--kind", kind, "--queue", "default,bad"];
            let args = [&args[..], &["--concurrency", "1"]].concat();
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            let worker = Process::spawn(&mut side.command(&args)).unwrap();
            for id in ids {
                let ended = side.run(&["jobs", "wait", id, "--timeout", "30s"], "");
                assert_ne!(ended.code, 7, "{ended:?}");
            }
            stop(worker);
        }
    }

    /// Everything was walked that there is.
    pub fn end(mut self) {
        for args in OF_A_STORE {
            self.walk(args);
            let url = &self.sides[1].place[1];
            let ended = self.sides[1].mill.run(&[&["--server", url], *args].concat());
            ended.code(2).says("store_needed");
        }
        for args in OF_NEITHER {
            self.walk(args);
        }
        let left: Vec<_> = self.leaves.difference(&self.walked).collect();
        assert!(left.is_empty(), "nobody has tried these on a server: {left:?}");
        self.servers.into_iter().for_each(stop);
        let differences = self.differences.join("\n");
        assert!(differences.is_empty(), "a server says something else:\n{differences}");
    }
}

/// All commands that do something, by the words that name them, as the binary lists them.
fn commands(mill: &Mill, path: &[&str]) -> BTreeSet<String> {
    let help = mill.run(&[path, &["--help"]].concat()).ok().stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.trim().is_empty());
    let lines = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let words: Vec<&str> = lines
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    if words.is_empty() {
        return BTreeSet::from([path.join(" ")]);
    }
    words.iter().flat_map(|name| commands(mill, &[path, &[*name]].concat())).collect()
}
