import type { AuditRow } from '../audit-queries.ts'
import type { Send } from '../send-queries.ts'
import { offsetOf } from '../send-text.ts'
import { decisionWords, type EventLink, isAsk, plannerText, type StoryLine } from '../story-lines.ts'
import { attemptLabels, countText } from '../words.ts'
import { table } from './components.ts'
import { type Html, html, type Part } from './html.ts'
import type { View } from './view.ts'

/** So many lines stand on the page; thousands of events may have asked for one email. */
const MOST_LINES = 200

/** What happened to a send, each line by its distance from the first; the time itself is in its title. */
export function timeline(lines: readonly StoryLine[], view: View): Html {
  const [first] = lines
  const left = lines.length - MOST_LINES
  const shown = left > 0 ? [...lines.slice(0, MOST_LINES / 2), ...lines.slice(-MOST_LINES / 2)] : lines
  return html`${left > 0 && html`<p>${countText(left)} lines in the middle are left out; the JSON has all events and calls.</p>`}<ol class="timeline of-send">${shown.map(
    ({ at, until, title, pieces, call, settlement }, index) => html`<li>
<span class="at">${first && timeOf(at, index === 0 ? dayAndTime(at, view) : offsetOf(at, first.at))}${
      first && until && html` → ${timeOf(until, offsetOf(until, first.at))}`
    }</span> <span class="kind">${title}</span> <div>${pieces.map(piece)}${call && callPanes(call)}${settlement && evidencePane(settlement, view)}</div></li>`,
  )}</ol>`
}

const piece = (part: string | EventLink): Part =>
  typeof part === 'string' ? part : html`<a href="/ops/events/${part.event}">${part.text}</a>`

/** Can have the focus, so that the whole time is shown without a mouse too. */
const timeOf = (at: Date, text: string) =>
  html`<time datetime="${at.toISOString()}" title="${at.toISOString().slice(0, 23).replace('T', ' ')} UTC" tabindex="0">${text}</time>`

const dayAndTime = (at: Date, { settings }: View) =>
  new Intl.DateTimeFormat('en-GB', {
    timeZone: settings.timeZone,
    day: 'numeric',
    month: 'short',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    fractionalSecondDigits: 3,
    hourCycle: 'h23',
  })
    .format(at)
    .replace(',', '')

/** What was asked of the email API and what it said. The key of the API isn't kept anywhere, so it can't be shown. */
function callPanes({ recipient, outcome, http_status, error, message_id }: Send['attempts'][number]): Html {
  const label = attemptLabels[outcome as keyof typeof attemptLabels]
  return html`<div class="panes-of-call"><details><summary>Request</summary><pre tabindex="0">POST /api/v1/transactional/send
content-type: application/json
authorization: Bearer (not kept)

to ${recipient}</pre><p class="hint">The body is the <a href="#message">message</a>.</p></details>
<details><summary>Answer</summary><dl class="facts"><dt>Came to</dt><dd>${label.icon} ${label.word}</dd>
<dt>HTTP status</dt><dd>${http_status ?? (outcome === 'accepted' ? '2xx' : '–')}</dd><dt>Code and text</dt><dd>${error ?? '–'}</dd><dt>Message ID</dt><dd class="mono">${
    message_id ?? '–'
  }</dd></dl></details></div>`
}

/** What made a settlement certain. */
function evidencePane(
  { grade, rule_version, candidates, evidence, event_at, attempt, actor }: Send['settlements'][number],
  view: View,
): Html {
  return html`<details><summary>Evidence</summary><dl class="facts"><dt>Grade</dt><dd>${grade}, rule v${rule_version}</dd><dt>Call</dt><dd>${attempt}</dd>
<dt>Time of the report</dt><dd>${view.exactTime(event_at)}</dd><dt>Settled by</dt><dd>${actor}</dd>
<dt>Candidates</dt><dd>${
    candidates.length === 0
      ? '–'
      : html`<ul class="plain">${candidates.map(
          ({ dedupe_key, attempt }) =>
            html`<li><a class="mono" href="/ops/sends/${encodeURIComponent(dedupe_key)}">${dedupe_key}</a>, call ${attempt}</li>`,
        )}</ul>`
  }</dd>${Object.entries(evidence ?? {}).map(([name, value]) => html`<dt>${evidenceWords[name] ?? name}</dt><dd>${valueText(value)}</dd>`)}</dl></details>`
}

const evidenceWords: Record<string, string> = {
  secondsAfterClaim: 'Seconds after the claim',
  outcome: 'Outcome of the call then',
  isExclusive: 'Nobody else sends with the account',
  isBreakerClosed: 'Matching by recipient was on',
  isOtherMailbox: 'Of another mailbox, as a person said',
  reason: 'Reason',
  says: 'The log says',
  by: 'Found by',
  line: 'Line of the sending log',
  line_sha256: 'Hash of the line',
  file_sha256: 'Hash of the log',
}

const valueText = (value: unknown): string =>
  typeof value === 'boolean' ? (value ? 'yes' : 'no') : typeof value === 'string' ? value : (JSON.stringify(value) ?? '–')

/** So much of one text of a message is on the page; the rest is in the JSON. */
const MOST_SHOWN = 20_000

/** The message that the email API was given, as source text. */
export function messageOfSend({ message, dedupe_key }: Pick<Send, 'message' | 'dedupe_key'>): Html {
  const { html_body, text_body, template_data, ...fields } = message
  const long = { text_body, html_body, template_data: template_data && JSON.stringify(template_data, null, 2) }
  return html`<details id="message"><summary>Message (as sent)</summary><dl class="facts">${Object.entries(fields).map(
    ([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`,
  )}</dl>${Object.entries(long).map(
    ([name, text]) =>
      text !== undefined &&
      html`<h3>${name}</h3><pre class="body" tabindex="0">${text.slice(0, MOST_SHOWN)}</pre>${
        text.length > MOST_SHOWN &&
        html`<p class="hint">The first ${countText(MOST_SHOWN)} of ${countText(text.length)} characters; all of it is in the <a href="/ops/sends/${encodeURIComponent(dedupe_key)}/json">JSON</a>.</p>`
      }`,
  )}</details>`
}

/** What people and programs decided of a send, and what they asked for. */
export function auditOfSend(audit: readonly AuditRow[], view: View): Html {
  const asks = audit.filter(isAsk).length
  const decisions = audit.length - asks
  const counted = decisions === 1 ? '1 decision' : `${decisions} decisions`
  return html`<details><summary>Audit (${counted}${asks > 0 && `, asked for ${asks === 1 ? 'once' : `${asks} times`}`})</summary>${
    audit.length === 0
      ? html`<p>Nobody has decided anything about this send.</p>`
      : table({
          caption: `${asks > 0 ? 'Decisions and what was asked for' : 'Decisions'}, the latest first`,
          head: ['When', 'Who', 'What', 'Reason', 'By'],
          rows: audit.map(
            (row) =>
              html`<tr><td>${view.exactTime(row.at)}</td><td>${row.actor}</td><td>${decisionWords[row.action] ?? row.action}${plannerText(row)}</td><td>${row.reason ?? '–'}</td><td>${row.via}</td></tr>`,
          ),
        })
  }</details>`
}
