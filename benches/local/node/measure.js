// The measurements of ../src/main.rs for fastq and p-queue: node --expose-gc measure.js NAME WHAT TASKS
import fastq from 'fastq';
import PQueue from 'p-queue';

const CONCURRENCY = 16;
const [name, what, count] = process.argv.slice(2);
const tasks = Number(count);

const work = async (n) => n;
const makes = {
  'fastq': () => {
    const queue = fastq.promise(work, CONCURRENCY);
    return { queue, push: (n) => queue.push(n), pause: () => queue.pause() };
  },
  // Its callbacks must not come at once: fastq would run out of stack.
  'fastq, no answer': () => {
    const queue = fastq((n, done) => queueMicrotask(done), CONCURRENCY);
    return { queue, push: (n) => queue.push(n), pause: () => queue.pause(), silent: true };
  },
  'p-queue': () => {
    const queue = new PQueue({ concurrency: CONCURRENCY });
    return { queue, push: (n) => queue.add(() => work(n)), pause: () => queue.pause() };
  },
};

const report = (value) => console.log(JSON.stringify({ name, what, value: Math.round(value * 10) / 10 }));
const used = () => {
  global.gc();
  return process.memoryUsage().rss;
};

const { queue, push, pause, silent } = makes[name]();
const begin = process.hrtime.bigint();
const took = () => Number(process.hrtime.bigint() - begin) / tasks;

if (what === 'burst' && silent) {
  // Its tasks run as they are pushed unless it is paused, so that they wait as in the others.
  pause();
  queue.drain = () => report(took());
  for (let n = 0; n < tasks; n += 1) push(n);
  queue.resume();
} else if (what === 'burst') {
  pause();
  const answers = [];
  for (let n = 0; n < tasks; n += 1) answers.push(push(n));
  if (queue.resume) queue.resume(); else queue.start();
  let sum = 0;
  for (const answer of answers) sum += await answer;
  report(took());
  if (sum !== (tasks * (tasks - 1)) / 2) throw new Error('an answer is missing');
} else if (what === 'one') {
  for (let n = 0; n < tasks; n += 1) if ((await push(n)) !== n) throw new Error('a wrong answer');
  report(took());
} else if (what === 'memory') {
  pause();
  const before = used();
  const kept = [];
  for (let n = 0; n < tasks; n += 1) kept.push(push(n));
  report((used() - before) / tasks);
  process.exit(kept.length === tasks ? 0 : 1);
}
