import type { Router } from 'express'
import { z } from 'zod'
import { type Status, statuses } from '../../sends/lifecycle.ts'
import { answerSentence } from '../answer.ts'
import { asConfigured, decideSend, reasonSchema } from '../decide-send.ts'
import { maskFor } from '../personal-data.ts'
import { findSend, type Send } from '../send-queries.ts'
import { sendLabels } from '../words.ts'
import { addAction, type Problem } from './action.ts'
import { actionForm, errorSummary, field, sendTag, table } from './components.ts'
import { html, type Part } from './html.ts'
import type { Page } from './layout.ts'
import { refusalPage } from './page.ts'
import type { ScreenDeps } from './routes.ts'
import { mayDecide, type Visit } from './visit.ts'

/** Where a send has its page. */
export const sendPath = (key: string): string => `/ops/sends/${encodeURIComponent(key)}`

const closed: readonly Status[] = ['sent', 'delivered', 'bounced', 'abandoned']

/** Whether a person may bring it back to be decided. */
export const canBeReopened = (status: Status): boolean => closed.includes(status)

const body = z.strictObject({
  version: z
    .string()
    .regex(/^[1-9]\d{0,8}$/)
    .transform(Number),
  /** How it stood on the page, to be compared with if it has changed since. */
  seen: z.enum(statuses),
  reason: reasonSchema,
})

/** The form that brings a closed send back to the review desk; for who may not, a line that says so. */
export function reopenForm(
  send: Pick<Send, 'dedupe_key' | 'status' | 'version'>,
  visit: Visit,
  given = '',
  problems: readonly Problem[] = [],
): Part {
  if (!mayDecide(visit)) return null
  const { dedupe_key: key, version, status } = send
  return html`<section id="reopen" data-key="1"><h2>Reopen</h2><p>It goes back to <b>Needs a decision</b>. Nothing is sent by this.</p>${actionForm(
    {
      action: `${sendPath(key)}/reopen`,
      fields: html`<input type="hidden" name="version" value="${version}"><input type="hidden" name="seen" value="${status}">
${field({ name: 'reason', label: 'Reason', value: given, required: true, maxLength: 1_000, problems, hint: 'Kept in the audit, for ever.' })}
<button class="main">Reopen</button>`,
      byApi: {
        method: 'POST',
        path: `/v1/sends/${encodeURIComponent(key)}/reopen`,
        body: { version, reason: '…' },
        cli: ['sends', 'resolve', key, '--reopen', '--reason', '…'],
      },
    },
  )}</section>`
}

/** Mounts the reopening of a closed send. */
export function addReopening(router: Router, deps: ScreenDeps): void {
  addAction(router, deps, '/ops/sends/:key/reopen', {
    roles: ['operator'],
    body,
    async handle({ body: { version, seen, reason }, visit, actor, req }) {
      const key = String(req.params.key)
      const decided = await decideSend(asConfigured(deps), key, {
        decision: 'reopen',
        version,
        reason,
        actor,
        via: 'page',
        requestId: visit.requestId,
      })
      if (decided.outcome === 'decided')
        return {
          to: sendPath(key),
          notice: {
            text: 'Reopened: it needs a decision now.',
            link: { href: `/ops/review?key=${encodeURIComponent(key)}`, label: 'Decide' },
          },
        }
      const send = await findSend(deps.pool, key, deps.sendsPerMinute)
      if (!send)
        return { page: refusalPage(404, 'No send has this key', html`Nothing was changed. <a href="/ops/sends">All sends</a>`) }
      return { page: changedPage(send, { version, seen, reason }, visit) }
    },
    async invalid({ problems, given, visit, req }) {
      const mask = maskFor(visit.session.person.role, deps.config())
      const key = String(req.params.key)
      const send = key.includes('\0') ? undefined : mask.apply(await findSend(deps.reads, key, deps.sendsPerMinute))
      if (!send) return refusalPage(404, 'No send has this key', 'Nothing was changed.')
      return {
        title: 'Error: Reopen',
        place: 'sends',
        status: 400,
        main: html`<h1 class="key">${key}</h1>${errorSummary(problems)}${reopenForm(send, visit, String(given.reason ?? ''), problems)}`,
      }
    },
  })
}

/** Nothing was applied: what changed meanwhile, with the reason still in its field. */
function changedPage(send: Send, { version, seen, reason }: z.output<typeof body>, visit: Visit): Page {
  const { view } = visit
  const { dedupe_key: key, status, settled_by, settled_at } = send
  return {
    title: 'Error: changed meanwhile',
    place: 'sends',
    status: 409,
    main: html`<h1>It changed while you had this open</h1><p><span class="mono">${key}</span>. <b>Your decision was not saved.</b> ${
      settled_at && settled_by && html`Last settled at ${view.exactTime(settled_at)} by ${settled_by}.`
    }</p>
<p class="answer">${answerSentence(send, view.settings.timeZone)}</p>
${table({
  caption: 'Before and after',
  head: ['', 'When you opened it', 'Now'],
  rows: [
    html`<tr><th scope="row">Status</th><td>${sendTag(seen)}</td><td>${sendTag(status)}</td></tr>`,
    html`<tr><th scope="row">Version</th><td>${version}</td><td>${send.version}</td></tr>`,
  ],
})}
<div class="actions"><a class="button" href="${sendPath(key)}">Keep this</a></div>
${
  canBeReopened(status)
    ? html`<h2>Decide again</h2>${reopenForm(send, visit, reason)}`
    : html`<p>As it is now (${sendLabels[status].word}), it can't be reopened. Your reason was: “${reason}”.</p>`
}`,
  }
}
