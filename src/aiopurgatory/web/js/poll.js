const LONGEST = 15;  // seconds to the next try, at least, when many have failed
const MAY_PASS = [200, 408, 409, 425, 429];

export const aborted = (signal) => new Promise((done) => {
  if (signal.aborted) done();
  else signal.addEventListener("abort", done, { once: true });
});
// Aborted .1 to .5 s after the browser is online again: what was under way until then goes nowhere. Not all at once.
let offline = new AbortController();
export const online = () => offline.signal;
globalThis.addEventListener?.("online", () => {
  const before = offline;
  offline = new AbortController();
  setTimeout(() => before.abort(), 100 + 400 * Math.random());
});

// Waits until the next try, for *told* seconds at least, or until *net* is aborted. Throws if trying again is of no use.
// Status 0: there was no answer.
export async function again(url, status, told, tries, { signal, replaced, net }) {
  if (status === 409 && replaced) return Promise.race([replaced(), aborted(signal)]);
  if (status > 0 && status < 500 && !MAY_PASS.includes(status))
    throw Object.assign(new Error(`${url} answered ${status}`), { status });
  const least = told || (status === 409 ? 2 * LONGEST : Math.min(LONGEST, 2 ** tries / 2));
  let timer;                             // not AbortSignal.timeout(): Node ends while only that waits
  const over = new Promise((done) => { timer = setTimeout(done, 1000 * least * (1 + Math.random())); });  // not all at once
  await Promise.race([over, aborted(AbortSignal.any([signal, net]))]).finally(() => clearTimeout(timer));
}

// Yields each new state of *url*, or a log's new events. Ends after the end of a log's topic, and when *signal* is aborted.
// Goes on after 5xx, when there is no answer, and at once when there is a network again. Throws if trying again is of no use, as after 401, 403, 404 and 410.
//   wait: seconds to wait for news. replaced: awaited when a newer poll with the same client= has replaced this one; without
//   it, goes on after 30 to 60 s. gone: called when the last version was too old to resume from, or a log's events are
//   lost: what follows is not its continuation. heard: called with each answer's status; 0: there was none.
export async function* poll(url, { signal = new AbortController().signal, wait = 25, replaced, gone, heard } = {}) {
  for (let etag = null, tries = 0; !signal.aborted; ) {
    const headers = { Prefer: `wait=${wait}`, ...(etag && { "If-None-Match": etag }) };
    const net = online(), late = AbortSignal.timeout(Math.ceil(1000 * (wait + 10)));
    let answer = null, text;
    try {
      answer = await fetch(url, { headers, cache: "no-store", signal: AbortSignal.any([signal, net, late]) });
      text = await answer.text();
    } catch { answer = null; }           // no network, no server, no CORS headers, or aborted
    if (signal.aborted) return;
    const status = answer?.status ?? 0, tag = answer?.headers.get("ETag") ?? null;
    heard?.(status);
    if (status === 204 && !tag) return;  // the topic has ended
    if (status === 204 || status === 304) {
      [etag, tries] = [tag ?? etag, 0];
    } else if (status === 200 && (!tag || tag !== etag)) {
      const news = JSON.parse(text);
      if (!tag && news?.length !== 0) throw new Error(`${url} sends no ETag, or does not expose it`);
      [etag, tries] = [tag, 0];
      if (tag) yield news;               // otherwise nobody has written to the topic yet
    } else if (status === 410 && tag !== etag) {
      etag = tag;                        // go on from there; without one, start over
      gone?.();
    } else {
      await again(url, status, Number(answer?.headers.get("Retry-After")), tries++, { signal, replaced, net });
    }
  }
}
