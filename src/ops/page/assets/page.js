// What the page can do besides: live updates, times, keys, copying. Everything works without it.
const root = document.documentElement
const $ = (selector, from = document) => from.querySelector(selector)
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)]
const typing = (element) =>
  element.closest('input:not([type=checkbox]):not([type=radio]), select, textarea, [contenteditable]') !== null

// --- Where a form's answer was shown, a reload or a copied address must not show it again.
function cleanAddress() {
  const address = new URL(location.href)
  if (!address.searchParams.has('done')) return
  address.searchParams.delete('done')
  history.replaceState(history.state, '', address)
}

// --- Times ----------------------------------------------------------------------------------------------------------
const clockOffset = root.dataset.now ? Date.parse(root.dataset.now) - Date.now() : 0
let isUtc = false

function ago(ms) {
  const seconds = Math.round(Math.abs(ms) / 1000)
  const text =
    seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`
  return ms < -500 ? `in ${text}` : `${text} ago`
}

function writeTimes() {
  for (const element of $$('time[datetime]')) {
    const at = new Date(element.dateTime)
    element.dataset.local ??= element.textContent
    if (isUtc) element.textContent = `${at.toISOString().slice(0, 19).replace('T', ' ')} UTC`
    else if ('relative' in element.dataset) {
      const clock = element.dataset.local.split(' · ')[0]
      element.textContent = `${clock} · ${ago(Date.now() + clockOffset - at.getTime())}`
    } else element.textContent = element.dataset.local
  }
  for (const zone of $$('[data-zone]')) {
    zone.dataset.own ??= zone.textContent
    zone.textContent = isUtc ? 'UTC' : zone.dataset.own
  }
}
setInterval(writeTimes, 15_000)

// The exact time on hover and focus; Escape takes it away, and it stays while the pointer is on it.
let tooltip
function hideTooltip() {
  tooltip?.remove()
  tooltip = undefined
}
function showTooltip(element) {
  hideTooltip()
  tooltip = Object.assign(document.createElement('div'), { className: 'tooltip', textContent: element.dataset.exact })
  tooltip.setAttribute('role', 'tooltip')
  document.body.append(tooltip)
  const { left, bottom } = element.getBoundingClientRect()
  tooltip.style.left = `${Math.max(4, Math.min(left, innerWidth - tooltip.offsetWidth - 4))}px`
  tooltip.style.top = `${Math.min(bottom, innerHeight - tooltip.offsetHeight)}px`
}
for (const kind of ['mouseover', 'focusin'])
  document.addEventListener(kind, ({ target }) => {
    const element = target.closest?.('time[datetime]')
    if (!element) {
      if (!target.closest?.('.tooltip')) hideTooltip()
      return
    }
    if (element.title) {
      element.dataset.exact = element.title
      element.removeAttribute('title')
    }
    showTooltip(element)
  })

// --- Copying ----------------------------------------------------------------------------------------------------------
function prepare() {
  for (const button of $$('[data-copy]')) button.hidden = false
  for (const element of $$('[data-script-only], [data-print]')) element.hidden = false
  writeTimes()
  cleanAddress()
}
document.addEventListener('click', ({ target }) => {
  const button = target.closest('[data-copy]')
  if (!button) return
  const { copy, address = location.href } = button.dataset
  const text = copy === 'address' ? new URL(address, location.href).href : copy
  const refused = () => say('The browser refused to copy.')
  // Over plain HTTP from elsewhere there is no clipboard.
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => say('Copied.'), refused)
  else refused()
})
function say(text) {
  const status = $('#status')
  if (status) status.textContent = text
}

// --- Swapped parts: the focus goes where the new content begins.
document.addEventListener('htmx:afterSettle', ({ detail }) => {
  prepare()
  if (detail.target?.id === 'main') ($('#main [autofocus]') ?? $('#main')).focus({ preventScroll: true })
})
let busyTimer
document.addEventListener('htmx:beforeRequest', () => {
  $('#main')?.setAttribute('aria-busy', 'true')
  busyTimer ??= setTimeout(
    () => document.body.append(Object.assign(document.createElement('div'), { className: 'busy-bar' })),
    300,
  )
})
document.addEventListener('htmx:afterRequest', () => {
  clearTimeout(busyTimer)
  busyTimer = undefined
  $('#main')?.removeAttribute('aria-busy')
  $('.busy-bar')?.remove()
})
// A page that says why nothing was done is shown like any other.
document.addEventListener('htmx:beforeSwap', ({ detail }) => {
  if (detail.xhr.status >= 400 && detail.xhr.getResponseHeader('content-type')?.startsWith('text/html')) {
    detail.shouldSwap = true
    detail.isError = false
  }
})

// --- Live updates: one stream for all tabs of this browser ------------------------------------------------------------
const streamPath = root.dataset.stream
let isPaused = false
let isRefreshing = false
let isStale = false

/** Gets this page anew and changes what is live in place; new rows are only counted. */
async function refresh() {
  // What answered a form is gone by a look at its address.
  if ($('#main[data-no-refresh]')) return
  if (isPaused || document.hidden) {
    isStale = true
    return
  }
  if (isRefreshing) {
    isStale = true
    return
  }
  isRefreshing = true
  isStale = false
  try {
    const answer = await fetch(location.href, { headers: { 'X-Refresh': '1' }, credentials: 'same-origin' })
    if (!answer.ok || answer.redirected) return
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html')
    document.title = fresh.title
    for (const part of $$('[data-live][id]')) {
      const next = fresh.getElementById(part.id)
      if (!next || next.innerHTML === part.innerHTML) continue
      // Nothing changes under a hand or an open detail.
      if (part.contains(document.activeElement) && part !== document.activeElement) continue
      if ($('details[open]', part)) continue
      part.replaceChildren(...next.childNodes)
    }
    const list = $('[data-rows]')
    if (list) {
      const known = new Set($$('[data-row]', list).map((row) => row.dataset.row))
      const added = $$('[data-rows] [data-row]', fresh).filter((row) => !known.has(row.dataset.row)).length
      const line = $('[data-new-rows]')
      if (line && !new URL(location.href).searchParams.has('cursor')) {
        line.hidden = added === 0
        const link = $('a', line)
        if (link) link.textContent = `${added} new · Show`
      }
    }
    prepare()
  } catch {
    // The stream tells when the service is away.
  } finally {
    isRefreshing = false
    setTimeout(() => {
      if (isStale) void refresh()
    }, 1_000)
  }
}

if (streamPath && 'BroadcastChannel' in window && navigator.locks) {
  const channel = new BroadcastChannel('oncehook')
  const sign = $('[data-stream]:not(html)')
  const show = (text) => {
    if (!sign) return
    sign.hidden = false
    sign.textContent = text
  }
  const timeZone = $('[data-zone]')?.textContent
  const clockText = () => new Date().toLocaleTimeString('en-GB', { timeZone, hour: '2-digit', minute: '2-digit' })
  const receive = (message) => {
    if (message === 'lost') show(`Live updates stopped ${clockText()} · reload to see what is new`)
    else if (message === 'open') show('Live')
    else void refresh()
  }
  channel.addEventListener('message', ({ data }) => receive(data))
  const tell = (message) => {
    channel.postMessage(message)
    receive(message)
  }
  let leave
  const lead = () =>
    navigator.locks.request('oncehook-stream', { mode: 'exclusive' }, () => {
      if (document.hidden) return undefined
      return new Promise((done) => {
        const source = new EventSource(streamPath)
        source.addEventListener('open', () => tell('open'))
        source.addEventListener('change', () => tell('change'))
        source.addEventListener('error', () => tell('lost'))
        leave = () => {
          source.close()
          leave = undefined
          done()
        }
      })
    })
  void lead()
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) leave?.()
    else {
      void lead()
      if (isStale) void refresh()
    }
  })
  addEventListener('pagehide', () => leave?.())
}
document.addEventListener('click', ({ target }) => {
  const button = target.closest('[data-pause]')
  if (!button) return
  isPaused = !isPaused
  button.textContent = isPaused ? 'Go on with live updates' : 'Pause live updates'
  if (!isPaused && isStale) void refresh()
})

// --- Keys -------------------------------------------------------------------------------------------------------------
const places = { o: '/ops', r: '/ops/review', s: '/ops/sends', e: '/ops/events' }
let isGoing = false
document.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    const form = event.target.closest('form')
    if (!form) return
    event.preventDefault()
    return form.requestSubmit($('button.main, button:not([type=button])', form))
  }
  if (event.key === 'Escape') return hideTooltip()
  if (!root.hasAttribute('data-shortcuts') || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return
  if (isGoing) {
    isGoing = false
    if (places[event.key]) location.href = places[event.key]
    return
  }
  const rows = $$('[data-row]')
  const current = rows.findIndex((row) => row.classList.contains('current'))
  const select = (index) => {
    const row = rows[Math.max(0, Math.min(index, rows.length - 1))]
    if (!row) return
    for (const other of rows) other.classList.toggle('current', other === row)
    row.scrollIntoView({ block: 'nearest' })
    $('a', row)?.focus({ preventScroll: true })
  }
  const acts = {
    '/': () => $('#search')?.focus(),
    g: () => {
      isGoing = true
      setTimeout(() => {
        isGoing = false
      }, 1_500)
    },
    j: () => select(current + 1),
    k: () => select(current - 1),
    x: () => $('input[type=checkbox]', rows[current] ?? document.createElement('p'))?.click(),
    u: () => {
      isUtc = !isUtc
      writeTimes()
    },
    '?': () => $('#keys')?.showModal(),
  }
  if (/^[1-9]$/.test(event.key)) {
    const choice = $(`[data-key="${event.key}"]`)
    if (!choice) return
    event.preventDefault()
    if (choice.tagName === 'DETAILS') choice.open = true
    if (choice.tagName === 'A') return choice.click()
    return $('input:not([type=hidden]), textarea, select', choice)?.focus()
  }
  const act = acts[event.key]
  if (!act) return
  event.preventDefault()
  act()
})

document.addEventListener('click', ({ target }) => {
  // All ticks of a list at once.
  const all = target.closest('[data-tick-all]')
  if (all) for (const box of $$(`input[name="${all.dataset.tickAll}"]`)) box.checked = all.checked
})
document.addEventListener('click', ({ target }) => {
  if (target.closest('[data-print]')) print()
})
// A print shows what is folded.
addEventListener('beforeprint', () => {
  for (const part of $$('details')) part.open = true
})
if ($('#errors')) {
  $('#errors').focus()
}
prepare()
