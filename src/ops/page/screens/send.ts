import { type Request, Router } from 'express'
import { answerSentence } from '../../answer.ts'
import { sendKey } from '../../filters.ts'
import { type Mask, maskFor } from '../../personal-data.ts'
import { findSend, type Send } from '../../send-queries.ts'
import { findStory, type SendStory } from '../../send-story.ts'
import { sendText } from '../../send-text.ts'
import { secretTextOf } from '../../story-lines.ts'
import { sendLabels, verdictWords } from '../../words.ts'
import { byApiDetails, copyButton, live, sendTag } from '../components.ts'
import { html, type Part } from '../html.ts'
import { missingPage, screen } from '../page.ts'
import { addReopening, canBeReopened, reopenForm, sendPath } from '../reopening.ts'
import type { ScreenDeps } from '../routes.ts'
import { auditOfSend, messageOfSend, timeline } from '../send-timeline.ts'
import { mayDecide, type Visit, visitOf } from '../visit.ts'

/** One send: whether the customer got it, and everything that happened on the way. */
export function sendScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const secretText = secretTextOf(() => deps.config().sources, deps.fingerprints)

  /** The send that is asked for, and what this person may not see of it. */
  async function find(visit: Visit, req: Request): Promise<{ key: string; send: Send | undefined; mask: Mask }> {
    const key = String(req.params.key)
    const send = sendKey.safeParse(key).success ? await findSend(deps.reads, key, deps.sendsPerMinute) : undefined
    const mask = maskFor(visit.session.person.role, deps.config())
    return { key, send: mask.apply(send), mask }
  }

  router.get(
    '/ops/sends/:key',
    screen(deps, async (visit, req) => {
      const { key, send, mask } = await find(visit, req)
      if (!send) return missingSend(key)
      const story = mask.apply(await findStory(deps.reads, send, secretText))
      const address = `${deps.publicUrl ?? `${req.protocol}://${req.get('host')}`}${sendPath(key)}`
      const zone = visit.view.settings.timeZone
      const text = sendText(send, story.lines, address, zone)
      const main = html`<div class="title"><div class="name"><h1 class="key">${send.dedupe_key}</h1>${live('send-status', sendTag(send.status), 'span')}</div>
<div class="actions">${copyButton('address', 'Copy link')}${copyButton(text, 'Copy as text')}<button type="button" class="quiet" data-print hidden>Print</button><a class="button quiet" href="${sendPath(key)}/json">JSON</a></div></div>
${live('answer', html`<p class="answer">${answerSentence(send, zone)}</p>${send.explanation !== null && html`<p>${send.explanation}</p>`}`)}
<div class="actions">${decision(send, story, visit)}</div>
<h2 class="hidden">What happened</h2>${live('timeline', timeline(story.lines, visit.view))}
<div class="folds">${messageOfSend(send)}${auditOfSend(story.audit, visit.view)}
<details><summary>As text</summary><pre tabindex="0">${text}</pre></details>
${byApiDetails({ method: 'GET', path: `/v1/sends/${encodeURIComponent(key)}`, cli: ['sends', 'show', key] })}</div>
${canBeReopened(send.status) && reopenForm(send, visit)}`
      return { title: `${sendLabels[send.status].word}: ${key}`, place: 'sends', main }
    }),
  )

  router.get('/ops/sends/:key/json', async (req, res, next) => {
    const { send } = await find(visitOf(res), req)
    if (!send) return next()
    res.set({ 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' }).json(send)
  })

  addReopening(router, deps)
  return router
}

/** What a person can do about it from here. */
function decision(send: Send, { evidence }: SendStory, visit: Visit): Part {
  const { status, dedupe_key, events } = send
  if (status === 'needs_review') {
    const desk = `/ops/review?key=${encodeURIComponent(dedupe_key)}`
    const suggestion = evidence?.suggestion
    return html`${
      mayDecide(visit)
        ? html`<a class="button main" href="${desk}">Decide…</a>`
        : html`<a class="button" href="${desk}">See the evidence…</a><span class="muted">Deciding needs role operator.</span>`
    }${
      suggestion &&
      html`<span><b>Suggested: ${verdictWords[suggestion.verdict]}</b>${suggestion.grade && ` (grade ${suggestion.grade})`}: ${suggestion.explanation}</span>`
    }`
  }
  if (status === 'rejected') {
    const event = events.findLast(({ outcome }) => outcome === 'queued')
    if (!event) return html`<span>Its key is free: whoever asked for it (${send.requested_by}) can ask again.</span>`
    if (!mayDecide(visit)) return html`<span class="muted">Replaying its event needs role operator.</span>`
    return html`<a class="button" href="/ops/replays/new?event=${event.id}">Replay its event…</a><span>It asks for this email again; a dry run comes first.</span>`
  }
  if (!canBeReopened(status)) return html`<span class="muted">Nothing to decide: it is under way.</span>`
  return mayDecide(visit)
    ? html`<a class="button" href="#reopen">Reopen…</a>`
    : html`<span class="muted">Reopening it needs role operator.</span>`
}

function missingSend(key: string) {
  return {
    ...missingPage(
      'No send has this key',
      html`<span class="mono">${key}</span> was never asked for, or the key is written otherwise: keys differ by case and by every character.
<a href="/ops/search?q=${encodeURIComponent(key)}">Search for it</a> to see whether an event names it and where the chain broke, or look through <a href="/ops/sends">all sends</a>.`,
    ),
    place: 'sends' as const,
  }
}
