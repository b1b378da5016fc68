'use strict';
// Replaces the part of the page that changes with what the server sends. The server has escaped it.
const live = document.getElementById('live');
const state = document.getElementById('state');
const time = document.getElementById('time');
const longestSilence = 3 * Number(live.dataset.refresh);
let events, silence, retry;

function showNotLive() { state.textContent = 'not live: load the page again if this lasts'; }

function showLive() {
  state.textContent = 'live';
  clearTimeout(silence);
  silence = setTimeout(showNotLive, longestSilence);
}

function listen() {
  const stream = events = new EventSource(location.href);
  stream.onmessage = (event) => { live.innerHTML = event.data; showLive(); };
  stream.addEventListener('time', (event) => { time.textContent = event.data; showLive(); });
  stream.onerror = () => {
    showNotLive();
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(listen, 10000);
  };
}

// A hidden page has no stream.
function follow() {
  clearTimeout(silence);
  clearTimeout(retry);
  events?.close();
  state.textContent = '';
  if (!document.hidden) listen();
}
document.addEventListener('visibilitychange', follow);
follow();
