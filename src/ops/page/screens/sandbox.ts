import { Router } from 'express'
import { z } from 'zod'
import { type Belief, listBeliefs } from '../../belief-queries.ts'
import { countText } from '../../words.ts'
import { addAction } from '../action.ts'
import { actionForm, field, live, select, sendTag, table } from '../components.ts'
import { type Html, html, type Part } from '../html.ts'
import { refusalPage, screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { type AcceptedEmail, type SampleKind, type SandboxPanel, samples } from '../sandbox-panel.ts'
import { mayDecide, type Visit } from '../visit.ts'

const to = '/ops/sandbox'

/** The panel of the email sandbox: make something go wrong, and see what the service makes of it. For development only. */
export function sandboxScreen(deps: ScreenDeps & { sandbox: SandboxPanel }): Router {
  const { sandbox } = deps
  const router = Router({ caseSensitive: true, strict: true })

  router.get(
    to,
    screen(deps, async (visit) => {
      const [truth, beliefs] = await Promise.all([sandbox.truth(), listBeliefs(deps.reads)])
      const main = html`<h1>Sandbox</h1><p>It stands in for the email API on this machine. Have it go wrong, send samples, and see what becomes of them.</p>
${mayDecide(visit) ? html`${armForms(sandbox, truth.held)}<h2>Samples</h2>${sampleForms(sandbox)}` : html`<p class="muted">Arming it and sending samples needs role operator.</p>`}
<h2>Truth and belief</h2>${live('truth', truthTable(truth, beliefs, visit))}`
      return { title: 'Sandbox', place: 'sandbox', main }
    }),
  )

  const armBody = z.strictObject({
    what: z.enum(['fault', 'report']),
    name: z.string().max(50),
    times: z.coerce.number().int().min(1).max(1_000),
  })
  addAction(router, deps, '/ops/sandbox/arm', {
    roles: ['operator'],
    body: armBody,
    async handle({ body: { what, name, times } }) {
      const known = (what === 'fault' ? sandbox.faults : sandbox.reports).find((each) => each.name === name)
      if (!known) return { page: refusalPage(400, 'The sandbox cannot do that', 'Choose one of the list.') }
      await sandbox.arm(what, name, times)
      const whose = what === 'fault' ? 'The next call' : 'The next report'
      return { to, notice: { text: `${whose}${times > 1 ? `, and ${countText(times - 1)} more,` : ''} ${known.text}.` } }
    },
  })
  addAction(router, deps, '/ops/sandbox/clear', {
    roles: ['operator'],
    body: z.strictObject({}),
    async handle() {
      await sandbox.clear()
      return { to, notice: { text: 'Nothing is armed any more.' } }
    },
  })
  addAction(router, deps, '/ops/sandbox/deliver', {
    roles: ['operator'],
    body: z.strictObject({}),
    async handle() {
      const count = await sandbox.deliverHeld()
      return { to, notice: { text: `${countText(count)} held ${count === 1 ? 'report was' : 'reports were'} posted.` } }
    },
  })
  addAction(router, deps, '/ops/sandbox/send', {
    roles: ['operator'],
    body: z.strictObject({ kind: z.enum(Object.keys(samples) as [SampleKind, ...SampleKind[]]) }),
    async handle({ body: { kind } }) {
      const sent = await sandbox.send(kind)
      if (!sent) return { page: refusalPage(409, 'There is nothing to send', 'No configured source has a rule and samples.') }
      const counts = [...Map.groupBy(sent.answers, (answer) => answer)].map(([answer, all]) =>
        sent.answers.length === 1 ? answer : `${countText(all.length)} × ${answer}`,
      )
      return { to, notice: { text: `${sent.source} ${sent.type} ${sent.id}: ${counts.join(', ')}.` } }
    },
  })
  return router
}

function armForms({ faults, reports }: SandboxPanel, held: number): Html {
  const form = (what: 'fault' | 'report', label: string, choices: SandboxPanel['faults']) =>
    actionForm({
      action: '/ops/sandbox/arm',
      className: 'filters',
      byApi: 'personal',
      fields: html`<input type="hidden" name="what" value="${what}">${select({
        name: 'name',
        scope: what,
        label,
        choices: choices.map(({ name, text }) => [name, `${name}: ${text}`] as const),
      })}${field({ name: 'times', label: 'How often', value: '1', inputMode: 'numeric', size: 4, scope: what })}<button class="main">Arm</button>`,
    })
  const button = (action: string, label: string) =>
    actionForm({ action, byApi: 'personal', fields: html`<button>${label}</button>` })
  return html`<h2>The next calls</h2>${form('fault', 'The email API', faults)}
<p class="muted">On the command line: <code>--fault NAME</code> with any <code>npx oncehook trigger …</code>; <code>--fault list</code> lists the names.</p>
<h2>The next reports</h2>${form('report', 'The report', reports)}
<div class="actions">${button('/ops/sandbox/deliver', held === 0 ? 'Deliver held reports (none)' : `Deliver the held reports now (${countText(held)})`)}${button('/ops/sandbox/clear', 'Forget what is armed')}</div>`
}

/** What does the same on the command line. */
function lineOf(kind: SampleKind, { source, type, otherType }: NonNullable<ReturnType<SandboxPanel['sampled']>>): Part {
  const trigger = `npx oncehook trigger ${source}`
  if (kind === 'again') return html`<code>${trigger} ${type} --id ID</code>, twice`
  if (kind === 'other') return html`<code>${trigger} ${otherType ?? type} --about ID</code>, by the ID of the first`
  return html`<code>${trigger} ${type}${kind === 'many' && ' --count 20'}</code>`
}

function sampleForms({ sampled }: SandboxPanel): Part {
  const from = sampled()
  if (!from) return html`<p>No configured source has a rule and samples.</p>`
  const kinds = (Object.keys(samples) as SampleKind[]).filter((kind) => kind !== 'other' || from.otherType !== undefined) // its own keys
  return html`<div class="actions">${kinds.map((kind) =>
    actionForm({
      action: '/ops/sandbox/send',
      byApi: 'personal',
      fields: html`<input type="hidden" name="kind" value="${kind}"><button>${samples[kind]}</button><p class="hint">${lineOf(kind, from)}</p>`,
    }),
  )}</div>`
}

/** Each send of late beside the emails that really went out for it. */
function truthTable(
  { emails: accepted, startedAt }: Awaited<ReturnType<SandboxPanel['truth']>>,
  beliefs: readonly Belief[],
  { view }: Visit,
): Html {
  const sameMessage =
    (email: AcceptedEmail) =>
    ({ message }: Belief) =>
      isSame(email.message, message)
  const rows = beliefs.map((belief) => {
    const emails = accepted.filter((email) => sameMessage(email)(belief))
    return { belief, emails }
  })
  const most = Math.max(0, ...rows.map(({ emails }) => emails.length))
  const list = table({
    caption: 'The newest sends',
    head: ['Truth: what went out', 'Belief', 'Send', 'Agree?'],
    rows: rows.map(
      ({ belief, emails }) =>
        html`<tr><td class="first">${
          emails.length === 0
            ? belief.queued_at < startedAt
              ? '–'
              : 'nothing'
            : emails.map(({ at, messageId }) => html`<div>accepted ${messageId ?? 'without an ID'} ${view.time(at)}</div>`)
        }</td><td>${sendTag(belief.status)}</td><td><a href="/ops/sends/${encodeURIComponent(belief.dedupe_key)}">${belief.dedupe_key}</a></td><td data-label="Agree?">${
          emails.length === 0 && belief.queued_at < startedAt
            ? html`not known: the sandbox was started at ${view.time(startedAt)}`
            : agreement(belief, emails.length)
        }</td></tr>`,
    ),
    className: 'stack',
  })
  const verdict = html`<p>Emails per send: at most <b>${String(most)}</b> ${most <= 1 ? '✓' : '– a person has sent it again'}</p>`
  return beliefs.length > 0 ? html`${verdict}${list}` : html`<p>Nothing has been sent yet.</p>`
}

function agreement({ status }: Belief, emails: number): string {
  if (status === 'needs_review')
    return emails > 0 ? 'not yet: it went out, and no report has said so' : 'not yet: it did not go out'
  const isBelievedOut = status === 'sent' || status === 'delivered' || status === 'bounced'
  if (['queued', 'claimed', 'sending'].includes(status)) return 'under way'
  return isBelievedOut === emails > 0 ? '✓' : '✕'
}

/** The same fields with the same values, in whichever order. */
function isSame(one: Readonly<Record<string, unknown>>, other: Readonly<Record<string, unknown>>): boolean {
  const text = (message: Readonly<Record<string, unknown>>) =>
    JSON.stringify(Object.entries(message).sort(([a], [b]) => (a < b ? -1 : 1)))
  return text(one) === text(other)
}
