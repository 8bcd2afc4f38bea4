import { createHash } from 'node:crypto'
import type { SendRow } from '../send-queries.ts'
import { durationText } from '../words.ts'
import { tickedForm } from './bulk.ts'
import { live, sendTag, table } from './components.ts'
import { type Html, html } from './html.ts'
import { sendPath } from './reopening.ts'
import { tickOf } from './review-desk.ts'
import { mayDecide, type Visit } from './visit.ts'

/** Sends as a list; those that need a decision can be ticked by who may decide, and lead to the review desk together. */
export function sendTable(
  sends: readonly SendRow[],
  visit: Visit,
  { withTicks = false, caption = 'Sends, the latest first' } = {},
): Html {
  const isTickable = withTicks && mayDecide(visit) && sends.some(({ status }) => status === 'needs_review')
  const rows = sends.map((send) => {
    const { dedupe_key: key, version, status, recipient, subject, queued_at, eta, message_id } = send
    return html`<tr data-row="${key}">${isTickable && html`<td class="tick">${status === 'needs_review' && tickOf(key, version)}</td>`}<td class="first">${live(`status-${nameOf(key)}`, sendTag(status), 'span')}</td>
<td class="key"><a class="mono" href="${sendPath(key)}">${key}</a></td><td class="to">${recipient}</td><td class="rest">${subject ?? '–'}</td>
<td class="when">${visit.view.time(queued_at)}${eta && html`<br>${dueText(eta, visit.view.now)}`}</td><td class="rest mono">${message_id ?? '–'}</td></tr>`
  })
  const list = html`<div data-rows>${table({
    caption,
    head: [
      ...(isTickable
        ? [
            html`<span class="hidden">Tick</span><input type="checkbox" data-tick-all="sends" aria-label="Choose all of this page" data-script-only hidden>`,
          ]
        : []),
      'Status',
      'Send (key)',
      'To',
      'Subject',
      'Asked for',
      'Message ID',
    ],
    rows,
    className: 'stack sends',
  })}</div>`
  if (!isTickable) return list
  return html`${list}${tickedForm()}`
}

/** A name for a part of the page; keys hold what a name may not. */
const nameOf = (key: string) => createHash('sha256').update(key).digest('hex').slice(0, 16)

const dueText = (eta: Date, now: Date) =>
  eta.getTime() - now.getTime() < 1_000 ? 'due now' : `due in about ${durationText(eta.getTime() - now.getTime())}`
