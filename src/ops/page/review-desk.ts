import type { AttachableReport, SendEvidence } from '../evidence.ts'
import { MOST_COUNTED, type ReviewCounts, type ReviewRow } from '../review-queries.ts'
import { ageText, countText, verdictWords } from '../words.ts'
import { boosted, live, table } from './components.ts'
import { attribute, type Html, html, type Part } from './html.ts'
import { mayDecide, type Visit } from './visit.ts'

/** What a look at the desk asks for: whose evidence, and which sends are listed. */
export interface DeskPlace {
  suggestion?: 'sent' | 'not_sent' | 'cant_tell' | undefined
  cursor?: string | undefined
  key?: string | undefined
}

/** The address of the desk with these sends listed, and the evidence of this one. */
export function deskPath({ suggestion, cursor, key }: DeskPlace): string {
  const query = new URLSearchParams()
  if (suggestion) query.set('suggestion', suggestion)
  if (cursor) query.set('cursor', cursor)
  if (key) query.set('key', key)
  return query.size === 0 ? '/ops/review' : `/ops/review?${query}`
}

export type Tab = 'decisions' | 'reports' | 'events'

/** What may need a person, in three lists. */
export function deskTabs(current: Tab): Html {
  const tabs: [Tab, string, string][] = [
    ['decisions', '/ops/review', 'Decisions'],
    ['reports', '/ops/review?tab=reports', 'Unmatched reports'],
    ['events', '/ops/review?tab=events', 'Quarantined and failed events'],
  ]
  return html`<nav aria-label="What needs a person"><ul class="tabs">${tabs.map(
    ([tab, href, label]) => html`<li><a href="${href}"${attribute('aria-current', tab === current && 'page')}>${label}</a></li>`,
  )}</ul></nav>`
}

/** How many need a decision, by what is suggested; each a link to its list. */
export function deskCounts(counts: ReviewCounts, { suggestion }: DeskPlace, { view }: Visit): Html {
  const { open, oldest_at } = counts
  const links = ([undefined, 'sent', 'not_sent', 'cant_tell'] as const).map((verdict) => {
    const label = verdict === undefined ? 'all' : `${verdictWords[verdict]} ${countText(counts[verdict], MOST_COUNTED)}`
    return html`<a href="${deskPath({ suggestion: verdict })}"${attribute('aria-current', verdict === suggestion && 'true')}>${label}</a>`
  })
  const [all, ...suggested] = links
  return live(
    'desk-counts',
    html`<p ${boosted}><b>${countText(open, MOST_COUNTED)}</b>${oldest_at && ` · oldest ${ageText(oldest_at, view.now)}`} · ${all} · suggested: ${suggested.map(
      (link, index) => html`${index > 0 && ' · '}${link}`,
    )}</p>`,
  )
}

/** The sends that need a decision, the oldest first; each leads to its evidence. */
export function deskList(rows: readonly ReviewRow[], place: DeskPlace, current: string | undefined, visit: Visit): Html {
  const row = ({ dedupe_key: key, version, recipient, queued_at, last_error, asked_by, asked_at, suggestion }: ReviewRow) => {
    const isCurrent = key === current
    return html`<tr data-row="${key}"${attribute('class', isCurrent && 'current')}><td>${mayDecide(visit) && tickOf(key, version)}</td>
<td><a class="mono" href="${deskPath({ ...place, key })}#evidence"${attribute('aria-current', isCurrent && 'true')}${attribute('autofocus', isCurrent && visit.done !== undefined)}>${key}</a><br><span class="muted">${last_error ?? 'reopened'} · ${ageText(queued_at, visit.view.now)}</span></td>
<td>${recipient}<br><span class="muted">suggested: ${verdictWords[suggestion.verdict]}</span>${asked_by !== null && html`<br><b>asked for by ${asked_by.replace(/^person:/, '')}, ${visit.view.time(asked_at)}</b>`}</td></tr>`
  }
  return html`<div data-rows>${table({
    caption: 'Need a decision, the oldest first',
    head: [
      html`<span class="hidden">Choose</span>${mayDecide(visit) && html`<input type="checkbox" data-tick-all="sends" aria-label="Choose all of this page" data-script-only hidden>`}`,
      'Send (key)',
      'To',
    ],
    rows: rows.map(row),
  })}</div>`
}

/** The box that takes a send into the check, at the version that the list shows. */
export const tickOf = (key: string, version: number): Html =>
  html`<input type="checkbox" name="sends" form="bulk" value="${version} ${key}" aria-label="Choose ${key}">`

const kindWords: Record<SendEvidence['lines'][number]['kind'], string> = {
  request: 'Request',
  end: 'Answer',
  report: 'Report',
  parked: 'Report',
  sending_log: 'Log',
  asked: 'Asked for',
}

/** What is known of whether the email went out. */
export function evidencePart(evidence: SendEvidence, { view }: Visit, id = 'evidence'): Html {
  const { lines, suggestion, around, recipient, last_error } = evidence
  const others = around.sends === 1 ? '1 other send' : `${countText(around.sends)} other sends`
  return live(
    id,
    html`<p class="answer">We don't know whether this email was sent${last_error !== null && `: ${last_error}`}.</p>
<p>To ${recipient}. It will not be sent again unless a person decides.</p>
<h3>Evidence</h3>${
      lines.length === 0
        ? html`<p>None: no call is known.</p>`
        : html`<ol class="timeline">${lines.map(
            ({ at, kind, text }) =>
              html`<li><span class="at">${view.time(at)}</span> <span class="kind">${kindWords[kind]}</span> <div>${text}</div></li>`,
          )}</ol>`
    }${
      suggestion &&
      html`<p><b>Suggestion: ${verdictWords[suggestion.verdict].toUpperCase()}</b>${suggestion.grade && ` · grade ${suggestion.grade}`}: ${suggestion.explanation}</p>
<details><summary>Why?</summary>${whyPart}</details>`
    }<p>Also for this recipient ±24 h: ${others}${around.sends > 0 && ` (${countText(around.delivered)} delivered)`}, ${countText(around.parked_reports)} parked ${around.parked_reports === 1 ? 'report' : 'reports'}.</p>`,
    'section',
  )
}

const whyPart = html`<dl class="facts"><dt>Sent</dt><dd>One report fits. Grade A is certain: the same message ID, or the call's own answer. B is strong: the recipient, and the report's own time. C is fair: the recipient, and when the report arrived.</dd>
<dt>Not sent</dt><dd>Only a sending log that was read in, has every other email of that time and lacks this one, says so.</dd>
<dt>Can't tell</dt><dd>No report, or several that can't be told apart. That none came proves nothing: reports may be late or lost.</dd></dl>
<p class="hint">It is the rule by which reports settle sends by themselves. A suggestion changes nothing; you decide.</p>`

/** One parked report in a line. */
export function reportText({ kind, message_id, recipient, seconds_after_call, parked }: AttachableReport): Part {
  const when =
    seconds_after_call === null
      ? ''
      : seconds_after_call < 0
        ? `, ${countText(-seconds_after_call)} s before the call`
        : `, ${countText(seconds_after_call)} s after the call`
  return html`${kind} ${message_id !== null && html`<span class="mono">${message_id}</span>`}${recipient !== null && ` → ${recipient}`}${when}, parked: ${parked}`
}
