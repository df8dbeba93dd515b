//! The binary as a user meets it: real processes, real stores, exit codes and what is printed.

mod dead;
mod demo;
mod enqueue;
mod jobs;
mod lines;
mod mill;
mod stores;
mod work;
