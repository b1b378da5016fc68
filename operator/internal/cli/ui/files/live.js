'use strict';
// Replaces the part of the page that changes with what the server sends. The server has escaped it.
const live = document.getElementById('live');
const state = document.getElementById('state');
function listen() {
  const events = new EventSource(location.href);
  events.onopen = () => { state.textContent = 'live'; };
  events.onmessage = (event) => { live.innerHTML = event.data; };
  events.onerror = () => {
    state.textContent = 'not live: load the page again if this lasts';
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 10000);
  };
}
listen();
