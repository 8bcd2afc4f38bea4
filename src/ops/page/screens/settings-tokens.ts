import { type Request, Router } from 'express'
import { z } from 'zod'
import { reasonSchema } from '../../decide-send.ts'
import { readRowId } from '../../filters.ts'
import { findToken, issueToken, listTokens, revokeToken, roles, type TokenRow, tokenLifetime, tokenName } from '../../tokens.ts'
import { addAction, type Given, type Problem } from '../action.ts'
import { actionForm, copyButton, errorSummary, field, pager, select, table } from '../components.ts'
import { type Html, html, type Part } from '../html.ts'
import type { Page } from '../layout.ts'
import { missingPage } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { addOperatorPages, reasonField, rowsOf, settingsPage, shownOnce } from '../settings-frame.ts'
import type { Visit } from '../visit.ts'

const HERE = '/ops/settings/tokens'
const operators = ['operator'] as const
const missing = missingPage('No such token', html`<a href="${HERE}">Tokens</a>`)
const roleTexts = {
  reader: 'reader: reads',
  operator: 'operator: also decides and manages',
  sender: 'sender: asks for emails only',
}
const lifetimes = [
  ['90d', '90 days'],
  ['30d', '30 days'],
  ['366d', 'a year'],
  ['', 'until it is revoked'],
] as const

/** The tokens of the API: made, seen in use, and ended. */
export function settingsTokensScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const { pool, reads, now } = deps
  const page = async (visit: Visit, req: Request, problems: Problem[] = [], given: Given = {}): Promise<Page> => {
    const { tokens, next_cursor } = await listTokens(reads, rowsOf(req))
    const main = html`${errorSummary(problems)}${tokens.length === 0 ? html`<p>No token yet.</p>` : listOf(tokens, visit)}${pager(visit.address, next_cursor)}<h2>Make a token</h2>${makeForm(problems, given)}`
    return settingsPage(HERE, main, { status: problems.length > 0 ? 400 : 200 })
  }
  const onePage = async (visit: Visit, req: Request, problems: Problem[] = []): Promise<Page> => {
    const id = readRowId(String(req.params.id))
    const token = id === undefined ? undefined : await findToken(reads, id)
    return token ? tokenPage(token, visit, problems) : missing
  }

  addOperatorPages(router, deps, HERE, 'Seeing, making and revoking tokens', { list: page, one: onePage })
  addAction(router, deps, `${HERE}/make`, {
    roles: operators,
    body: z.strictObject({
      name: tokenName,
      role: z.enum(roles),
      expires_in: z.union([z.literal('').transform(() => undefined), tokenLifetime(now)]),
    }),
    async handle({ body: { name, role, expires_in }, actor, req }) {
      const issued = await issueToken(pool, { name, role, expiresAt: expires_in, actor, via: 'page' })
      return shownOnce(pool, req, HERE, `Token ${issued.name} was made; it was shown once.`, issuedPage(issued))
    },
    invalid: ({ problems, given, visit, req }) => page(visit, req, problems, given),
  })
  addAction(router, deps, `${HERE}/:id/revoke`, {
    roles: operators,
    body: z.strictObject({ reason: reasonSchema }),
    async handle({ body: { reason }, actor, req }) {
      const id = readRowId(String(req.params.id))
      const outcome = id === undefined ? 'not_found' : await revokeToken(pool, id, { actor, via: 'page', reason })
      if (outcome === 'not_found') return { page: missing }
      return { to: HERE, notice: { text: outcome === 'done' ? `Token ${id} is revoked.` : `Token ${id} was revoked before.` } }
    },
    invalid: ({ problems, visit, req }) => onePage(visit, req, problems),
  })
  return router
}

function stateOf({ revoked_at, revoked_by, revoked_reason, expires_at }: TokenRow, { view }: Visit): Part {
  if (revoked_at)
    return html`revoked ${view.time(revoked_at)}${revoked_by !== null && html` by ${revoked_by}: ${revoked_reason}`}`
  if (expires_at === null) return 'until it is revoked'
  return html`${expires_at < view.now ? 'ended' : 'until'} ${view.time(expires_at)}`
}

function listOf(tokens: readonly TokenRow[], visit: Visit): Html {
  return table({
    caption: 'Tokens, the newest first; never a token itself',
    head: ['Name', 'Role', 'Made', 'By', 'Last used', 'Works'],
    rows: tokens.map(
      (token) =>
        html`<tr><td class="first"><a href="${HERE}/${token.id}">${token.name}</a></td><td>${token.role}</td><td data-label="Made">${visit.view.time(token.created_at)}</td><td data-label="by">${token.created_by ?? '–'}</td><td data-label="Last used">${token.last_used_at === null ? 'never' : visit.view.time(token.last_used_at)}</td><td data-label="Works">${stateOf(token, visit)}</td></tr>`,
    ),
    className: 'stack',
  })
}

function makeForm(problems: Problem[], given: Given): Html {
  const text = (name: string) => (typeof given[name] === 'string' ? given[name] : undefined)
  return actionForm({
    action: `${HERE}/make`,
    fields: html`${field({ name: 'name', label: 'What it is for', value: text('name'), required: true, maxLength: 200, problems })}
${select({ name: 'role', label: 'Role', value: text('role') ?? 'reader', choices: roles.map((role) => [role, roleTexts[role]]) })}
${select({ name: 'expires_in', label: 'Works for', value: text('expires_in') ?? '90d', choices: lifetimes })}<button class="main">Make a token</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/tokens',
      body: { name: '…', role: 'reader', expires_in: '90d' },
      cli: ['token', 'create', '--role', 'reader', '--name', '…', '--expires', '90d'],
    },
  })
}

function issuedPage({ name, role, token }: TokenRow & { token: string }): Page {
  return settingsPage(
    HERE,
    html`<p>Role ${role}. It is shown now and not again: only its hash is kept.</p><pre tabindex="0">${token}</pre>
<div class="actions">${copyButton(token)}<a href="${HERE}">Tokens</a></div>`,
    { heading: `Token for ${name}` },
  )
}

function tokenPage(token: TokenRow, visit: Visit, problems: Problem[]): Page {
  const { id, name, role, created_at, created_by, last_used_at, revoked_at } = token
  const { view } = visit
  const revokeForm = actionForm({
    action: `${HERE}/${id}/revoke`,
    fields: html`${reasonField(problems)}<button class="danger">Revoke</button>`,
    byApi: {
      method: 'POST',
      path: `/v1/tokens/${id}/revoke`,
      body: { reason: '…' },
      cli: ['token', 'revoke', id, '--reason', '…'],
    },
  })
  return settingsPage(
    HERE,
    html`${errorSummary(problems)}<dl class="facts"><dt>Role</dt><dd>${role}</dd><dt>Made</dt><dd>${view.time(created_at)}${created_by !== null && ` by ${created_by}`}</dd>
<dt>Last used</dt><dd>${last_used_at === null ? 'never' : view.time(last_used_at)}</dd><dt>Works</dt><dd>${stateOf(token, visit)}</dd></dl>
<p><a href="/ops/audit?actor=${encodeURIComponent(`token:${name}`)}">What was changed with it</a></p>${
      revoked_at === null && html`<h2>Revoke</h2><p>From the next request on it is refused, for good.</p>${revokeForm}`
    }`,
    { heading: name, status: problems.length > 0 ? 400 : 200 },
  )
}
