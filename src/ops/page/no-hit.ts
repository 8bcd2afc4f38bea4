import type { Mask } from '../personal-data.ts'
import type { NoHit } from '../search.ts'
import { eventTag, table } from './components.ts'
import { type Html, html } from './html.ts'
import { sendPath } from './reopening.ts'
import type { Visit } from './visit.ts'

/** One search as a person asked for it. */
export interface Asked {
  q: string
  visit: Visit
  mask: Mask
}

type EventOfTable = Pick<NoHit['events'][number], 'id' | 'source' | 'event_id' | 'type' | 'status' | 'received_at' | 'error'>

/** Events as a search finds them. */
export function eventTable(events: readonly EventOfTable[], { view }: Visit, caption: string): Html {
  return table({
    caption,
    head: ['Status', 'Event ID', 'Source', 'Type', 'Received', 'Why'],
    rows: events.map(
      ({ id, source, event_id, type, status, received_at, error }) =>
        html`<tr data-row="${id}"><td class="first">${eventTag(status)}</td><td class="first"><a class="mono" href="/ops/events/${id}">${event_id}</a></td>
<td>${source}</td><td>${type ?? '–'}</td><td>${view.time(received_at)}</td><td>${error ?? '–'}</td></tr>`,
    ),
    className: 'stack',
  })
}

/** What was looked through and where the chain from event to email broke. */
export function noHitPart({ text, searched, events }: NoHit, { q, visit, mask }: Asked): Html {
  const shown = mask.apply(events)
  return html`<p class="answer">${mask.text(text)}</p><p>Searched ${searched.join(', ')}.</p>${
    shown.length > 0 && eventTable(shown, visit, 'The events that name it')
  }${
    shown.some(({ follow_ups }) => follow_ups.length > 0) &&
    table({
      caption: 'What became of their follow-ups',
      head: ['Event ID', 'Rule', 'Outcome', 'Send'],
      rows: shown.flatMap(({ id, event_id, follow_ups }) =>
        follow_ups.map(
          ({ rule, outcome, error, dedupe_key }) =>
            html`<tr><td class="first"><a class="mono" href="/ops/events/${id}">${event_id}</a></td><td>${rule}</td><td>${outcome.replaceAll('_', ' ')}${error !== null && `: ${error}`}</td>
<td>${dedupe_key === null ? '–' : html`<a class="mono" href="${sendPath(dedupe_key)}">${dedupe_key}</a>`}</td></tr>`,
        ),
      ),
      className: 'stack',
    })
  }${
    mask.isOn
      ? html`<p class="muted">Searching raw bodies needs role operator.</p>`
      : bodiesForm(q, 'Search raw bodies of the last 24 h')
  }`
}

/** Asks for a look through bodies, which takes its time. */
export function bodiesForm(q: string, label: string): Html {
  return html`<form class="actions" action="/ops/search" method="get"><input type="hidden" name="q" value="${q}"><input type="hidden" name="bodies" value="1">
<button>${label}</button></form>`
}
