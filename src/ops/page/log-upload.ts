import { Router } from 'express'
import { z } from 'zod'
import { isZone } from '../../sends/sending-log.ts'
import { reasonSchema } from '../decide-send.ts'
import { maskFor } from '../personal-data.ts'
import { type ReconciledLog, reconcileLog, timesOffText } from '../reconcile-log.ts'
import { countText } from '../words.ts'
import { addAction, type Problem } from './action.ts'
import { actionForm, errorSummary, field, table } from './components.ts'
import { attribute, type Html, html, type Part } from './html.ts'
import type { Page } from './layout.ts'
import { refusalPage, screen } from './page.ts'
import { sendPath } from './reopening.ts'
import type { ScreenDeps } from './routes.ts'
import { mayDecide, type Visit } from './visit.ts'

const HERE = '/ops/review/log'
const MOST_BYTES = 5_000_000
/** Told one by one; of the rest there are the counts. */
const MOST_LINES = 200

const uploadForm = z
  .strictObject({
    file: z.instanceof(Buffer, { error: 'choose a file' }).refine((bytes) => bytes.length > 0, 'choose a file'),
    zone: z.string().trim().max(64).refine(isZone, 'there is no such time zone'),
    what: z.enum(['check', 'settle']),
    reason: z.string().max(1_000).default(''),
  })
  .transform(({ reason, ...rest }, context) => {
    const read = reasonSchema.safeParse(reason)
    if (rest.what === 'check') return { ...rest, reason: '' }
    if (read.success) return { ...rest, reason: read.data }
    context.addIssue({ code: 'custom', path: ['reason'], message: read.error.issues[0]?.message ?? 'must say why' })
    return z.NEVER
  })

interface Typed {
  zone?: string
  reason?: string
  problems?: readonly Problem[]
}

/** Reading in the sending log that the Inboxili dashboard exports: a check first, then settling by it. */
export function logScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  // It has the whole file in memory, so one at a time.
  let isReading = false
  router.get(
    HERE,
    screen(deps, (visit) => logPage(visit, {})),
  )
  addAction(router, deps, HERE, {
    roles: ['operator'],
    withFile: true,
    limit: MOST_BYTES + 10_000,
    body: uploadForm,
    async handle({ body: { file, zone, what, reason }, visit, actor }) {
      if (isReading)
        return { page: refusalPage(409, 'Another file is being read', 'Try again in a minute. Nothing was changed.') }
      isReading = true
      const by = what === 'settle' ? { actor, via: 'page', reason } : undefined
      const read = await reconcileLog(
        { pool: deps.pool, isExclusive: () => deps.config().account === 'exclusive' },
        inOne(file),
        {
          columns: {},
          zone,
          by,
        },
      ).finally(() => {
        isReading = false
      })
      const typed = { zone, reason }
      if ('problem' in read) return { page: logPage(visit, { ...typed, problems: [{ path: 'file', message: read.problem }] }) }
      deps.log.info({ file: read.file_sha256, ...read.summary, by: actor, request: visit.requestId }, 'sending log read')
      if (what === 'settle') return { to: '/ops/review', notice: { text: `Read: ${countsText(read)}.` } }
      return { page: logPage(visit, typed, maskFor(visit.session.person.role, deps.config()).apply(read)) }
    },
    invalid: ({ problems, given, visit }) =>
      logPage(visit, { zone: String(given.zone ?? 'UTC'), reason: String(given.reason ?? ''), problems }),
  })
  return router
}

/** A Buffer by itself would be read byte by byte. */
async function* inOne(bytes: Buffer) {
  yield bytes
}

function countsText({ summary, coverage, applied }: ReconciledLog): string {
  const { settles, adds, look } = summary
  const absent = coverage.absent.length
  return [
    `${countText(settles)} ${applied ? 'settled' : 'would be settled'} as sent`,
    `${countText(adds)} ${applied ? 'got' : 'would get'} something new`,
    `${countText(look)} for a person to look at`,
    `${countText(absent)} of ${countText(coverage.open)} open sends of that time are lacking, suggested as not sent`,
  ].join(' · ')
}

function logPage(visit: Visit, typed: Typed, checked?: ReconciledLog): Page {
  const { problems = [] } = typed
  const form = mayDecide(visit)
    ? uploadPart(typed, checked !== undefined)
    : html`<p class="muted">It needs the role operator.</p>`
  return {
    title: problems.length > 0 ? 'Error: Sending log' : 'Sending log',
    place: 'review',
    status: problems.length > 0 ? 400 : 200,
    main: html`<h1>Upload the sending log</h1>${errorSummary(problems)}
<p>The CSV file that the Inboxili dashboard exports. What it has as sent settles sends that need a decision; what a whole file lacks is suggested as <i>not sent</i>. It never sends anything, and the same file again changes nothing.</p>
${checked && checkedPart(checked)}${form}<p><a href="/ops/review">Back to the desk</a></p>`,
  }
}

function uploadPart({ zone = 'UTC', reason, problems = [] }: Typed, isChecked: boolean): Html {
  const wrong = problems.find(({ path }) => path === 'file')
  const what = (value: string, label: string, isChosen: boolean) =>
    html`<label><input type="radio" name="what" value="${value}"${attribute('checked', isChosen)}> ${label}</label> `
  return actionForm({
    action: HERE,
    encoding: 'multipart/form-data',
    fields: html`<div class="field"><label for="field-file">File, up to 5 MB</label>${wrong && html`<p class="error" id="error-file">${wrong.message}</p>`}<input id="field-file" name="file" type="file" accept=".csv,text/csv" required${attribute('aria-describedby', wrong && 'error-file')}></div>
${field({ name: 'zone', label: 'Time zone of times that name none', value: zone, required: true, maxLength: 64, problems, size: 30 })}
<fieldset class="choices"><legend>What to do</legend>${what('check', 'only say what it would do', !isChecked)}${what('settle', 'settle by it', isChecked)}</fieldset>
${field({ name: 'reason', label: 'Reason, if it is to settle', value: reason, maxLength: 1_000, problems })}<button class="main">Upload</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/reconcile?dry_run=true',
      file: { name: 'sending-log.csv', type: 'text/csv' },
      cli: ['reconcile', 'sending-log.csv', '--dry-run'],
    },
  })
}

const outcomes = {
  settles: 'is unknown, would be sent',
  adds: 'something new would be added',
  look: 'for a person to look at',
  known: 'known',
  nothing: 'nothing',
} as const

function checkedPart(read: ReconciledLog): Html {
  const { coverage, columns, lines } = read
  const telling = lines.filter(({ outcome }) => outcome !== 'known' && outcome !== 'nothing')
  const range: Part =
    coverage.from && coverage.until
      ? `${coverage.from.toISOString().slice(0, 16).replace('T', ' ')} to ${coverage.until.toISOString().slice(0, 16).replace('T', ' ')} UTC`
      : 'no line has a time'
  return html`<section aria-label="What it would do"><h2>What it would do</h2><p class="answer">${countsText(read)}.</p>
<dl class="facts"><dt>Lines</dt><dd>${countText(lines.length)}, ${range}</dd><dt>Columns</dt><dd>${Object.entries(columns)
    .map(([name, column]) => `${name.replaceAll('_', ' ')}: ${column ?? 'none'}`)
    .join(' · ')}</dd>
<dt>Is it whole?</dt><dd>${wholeText(coverage)}</dd></dl>
${
  telling.length > 0 &&
  table({
    caption: `Lines that do something${telling.length > MOST_LINES ? `, the first ${MOST_LINES}` : ''}`,
    head: [{ figures: 'Line' }, 'Send (key)', 'What'],
    rows: telling
      .slice(0, MOST_LINES)
      .map(
        ({ line, dedupe_key, outcome, reason }) =>
          html`<tr><td class="number">${line}</td><td>${keyLink(dedupe_key)}</td><td>${reason ?? outcomes[outcome]}</td></tr>`,
      ),
  })
}${
  coverage.absent.length > 0 &&
  html`<h3>Lacking, would be suggested as not sent</h3><ul>${coverage.absent.slice(0, MOST_LINES).map((key) => html`<li>${keyLink(key)}</li>`)}</ul>`
}</section>`
}

const keyLink = (key: string | null): Part => (key === null ? '–' : html`<a class="mono" href="${sendPath(key)}">${key}</a>`)

function wholeText({ known, missing, times_off_by_minutes: off }: ReconciledLog['coverage']): string {
  if (off !== null) return `Nobody can tell: ${timesOffText(off)}.`
  if (known === 0) return 'It has no email of ours that is known to be sent, so what it lacks proves nothing.'
  if (missing > 0) return `No: it lacks ${countText(missing)} of ${countText(known)} emails that were sent for certain.`
  return `It has all ${countText(known)} emails that were sent for certain in that time.`
}
