import { type Request, Router } from 'express'
import { z } from 'zod'
import { reasonSchema } from '../../decide-send.ts'
import { readRowId } from '../../filters.ts'
import { createPerson, listPeople, newPersonSchema, type PersonRow, personRoles, readPerson } from '../../people.ts'
import { disablePerson, enablePerson, type PersonChange, setRole } from '../../person-changes.ts'
import { createSignInLink, signInPath } from '../../sign-in-links.ts'
import { type ActionAnswer, addAction, type Given, type Problem } from '../action.ts'
import { actionForm, copyButton, errorSummary, field, pager, select, table } from '../components.ts'
import { type Html, html } from '../html.ts'
import type { Page } from '../layout.ts'
import { missingPage, refusalPage } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { addOperatorPages, reasonField, rowsOf, settingsPage, shownOnce } from '../settings-frame.ts'
import type { Visit } from '../visit.ts'

const HERE = '/ops/settings/people'
const LINK_MINUTES = 15
const operators = ['operator'] as const
const roleChoices = personRoles.map((role) => [role, role] as const)
const missing = missingPage('No such person', html`<a href="${HERE}">People and roles</a>`)

/** Who signs in, as which role, and how they are let in and out. */
export function settingsPeopleScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const { pool, reads } = deps
  const personOf = (req: Request) => {
    const id = readRowId(String(req.params.id))
    return id === undefined ? undefined : readPerson(reads, id)
  }
  const page = async (visit: Visit, req: Request, problems: Problem[] = [], given: Given = {}): Promise<Page> => {
    const { people, next_cursor } = await listPeople(reads, rowsOf(req))
    const list = listOf(people, visit)
    const main = html`${errorSummary(problems)}${list}${pager(visit.address, next_cursor)}<h2>Add a person</h2>${addForm(problems, given)}`
    return settingsPage(HERE, main, { status: problems.length > 0 ? 400 : 200 })
  }
  const onePage = async (visit: Visit, req: Request, problems: Problem[] = []): Promise<Page> => {
    const person = await personOf(req)
    return person ? personPage(person, visit, problems) : missing
  }

  addOperatorPages(router, deps, HERE, 'Seeing and changing who signs in', { list: page, one: onePage })
  addAction(router, deps, `${HERE}/add`, {
    roles: operators,
    body: newPersonSchema,
    async handle({ body, visit, actor, req }) {
      const person = await createPerson(pool, body, { actor, via: 'page' })
      if (!person) return { page: await page(visit, req, [{ path: 'name', message: 'is somebody else’s' }], body) }
      return linkAnswer(person, actor, req, `${person.name} was added.`)
    },
    invalid: ({ problems, given, visit, req }) => page(visit, req, problems, given),
  })
  addAction(router, deps, `${HERE}/:id/link`, {
    roles: operators,
    body: z.strictObject({}),
    async handle({ actor, req }) {
      const person = await personOf(req)
      return person ? linkAnswer(person, actor, req, `A link for ${person.name} was made.`) : { page: missing }
    },
  })
  const addChange = <Body extends z.ZodType>(
    name: string,
    body: Body,
    change: (id: string, body: z.output<Body>, actor: string) => Promise<PersonChange>,
  ) =>
    addAction(router, deps, `${HERE}/:id/${name}`, {
      roles: operators,
      body,
      async handle({ body, actor, req }): Promise<ActionAnswer> {
        const person = await personOf(req)
        const outcome = person ? await change(person.id, body, actor) : 'not_found'
        if (!person || outcome === 'not_found') return { page: missing }
        if (outcome === 'last_operator') return { page: lastOperatorPage(person) }
        const text = outcome === 'done' ? `Saved: ${person.name}.` : `${person.name} was so already; nothing was changed.`
        return { to: `${HERE}/${person.id}`, notice: { text } }
      },
      invalid: ({ problems, visit, req }) => onePage(visit, req, problems),
    })
  addChange(
    'role',
    z.strictObject({ role: z.enum(personRoles), role_reason: reasonSchema }),
    (id, { role, role_reason }, actor) => setRole(pool, id, role, { actor, via: 'page', reason: role_reason }),
  )
  const withReason = z.strictObject({ reason: reasonSchema })
  addChange('disable', withReason, (id, { reason }, actor) => disablePerson(pool, id, { actor, via: 'page', reason }))
  addChange('enable', withReason, (id, { reason }, actor) => enablePerson(pool, id, { actor, via: 'page', reason }))

  async function linkAnswer(person: PersonRow, actor: string, req: Request, text: string): Promise<ActionAnswer> {
    const code = await createSignInLink(pool, { person: person.id, minutes: LINK_MINUTES }, { actor, via: 'page' })
    if (code === undefined) return { page: refusalPage(409, `${person.name} is disabled`, 'Enable them first.') }
    const base = deps.publicUrl?.replace(/\/+$/, '') ?? `${req.protocol}://${req.get('host')}`
    return shownOnce(pool, req, `${HERE}/${person.id}`, text, linkPage(person, `${base}${signInPath(code)}`))
  }
  return router
}

function listOf(people: readonly PersonRow[], { view }: Visit): Html {
  return table({
    caption: 'People, the first one first',
    head: ['Name', 'Role', 'Signs in by', 'Last signed in', 'Since'],
    rows: people.map(
      (person) =>
        html`<tr><td class="first"><a href="${HERE}/${person.id}">${person.name}</a></td><td>${person.role}</td><td data-label="Signs in by">${wayIn(person)}</td><td data-label="Last">${view.time(person.last_signed_in_at)}</td><td data-label="Since">${view.time(person.created_at)}</td></tr>`,
    ),
    className: 'stack',
  })
}

const wayIn = ({ disabled_at, has_password }: PersonRow) =>
  disabled_at ? 'disabled' : has_password ? 'password' : 'one-time link only'

function addForm(problems: Problem[], { name, role }: Given): Html {
  return actionForm({
    action: `${HERE}/add`,
    fields: html`${field({ name: 'name', label: 'Name', value: text(name), required: true, maxLength: 100, problems, hint: 'What they type to sign in, and what the audit calls them. It stays.' })}
${select({ name: 'role', label: 'Role', value: text(role) ?? 'reader', choices: roleChoices })}<button class="main">Add, and make a one-time link</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/people',
      body: { name: '…', role: 'reader' },
      cli: ['user', 'create', '…', '--role', 'reader', '--link'],
    },
  })
}

const text = (value: unknown) => (typeof value === 'string' ? value : undefined)

function personPage(person: PersonRow, { view }: Visit, problems: Problem[]): Page {
  const { id, name, role, disabled_at } = person
  const roleForm = actionForm({
    action: `${HERE}/${id}/role`,
    fields: html`${select({ name: 'role', label: 'Role', value: role, choices: roleChoices })}${reasonField(problems, 'role_reason')}<button>Change the role</button>`,
    byApi: {
      method: 'POST',
      path: `/v1/people/${id}/role`,
      body: { role: 'reader', reason: '…' },
      cli: ['user', 'role', name, 'reader', '--reason', '…'],
    },
  })
  const verb = disabled_at ? 'enable' : 'disable'
  const endForm = actionForm({
    action: `${HERE}/${id}/${verb}`,
    fields: html`${reasonField(problems)}<button class="${disabled_at ? 'main' : 'danger'}">${disabled_at ? 'Let them in again' : 'Disable, and sign out everywhere'}</button>`,
    byApi: {
      method: 'POST',
      path: `/v1/people/${id}/${verb}`,
      body: { reason: '…' },
      cli: ['user', verb, name, '--reason', '…'],
    },
  })
  const linkForm = actionForm({
    action: `${HERE}/${id}/link`,
    fields: html`<button>Make a one-time link</button>`,
    byApi: { method: 'POST', path: `/v1/people/${id}/link`, cli: ['user', 'link', name] },
  })
  return settingsPage(
    HERE,
    html`${errorSummary(problems)}<dl class="facts"><dt>Role</dt><dd>${role}</dd><dt>Signs in by</dt><dd>${wayIn(person)}</dd>
<dt>Last signed in</dt><dd>${view.time(person.last_signed_in_at)}</dd><dt>Since</dt><dd>${view.time(person.created_at)}</dd>${
      disabled_at && html`<dt>Disabled</dt><dd>${view.time(disabled_at)}</dd>`
    }</dl><p><a href="/ops/audit?subject=${encodeURIComponent(`person:${name}`)}">What was changed about them</a> · <a href="/ops/audit?actor=${encodeURIComponent(`person:${name}`)}">What they have changed</a></p>
<h2>Role</h2>${roleForm}${!disabled_at && html`<h2>Let them in without a password</h2>${linkForm}`}
<h2>${disabled_at ? 'Enable' : 'Disable'}</h2>${endForm}`,
    { heading: name, status: problems.length > 0 ? 400 : 200 },
  )
}

function linkPage({ name }: PersonRow, url: string): Page {
  return settingsPage(
    HERE,
    html`<p>This address signs ${name} in once, within ${LINK_MINUTES} minutes. It is shown now and not again.</p>
<pre tabindex="0">${url}</pre><div class="actions">${copyButton(url)}<a href="${HERE}">People and roles</a></div>
<p>Signed in by it, they may set a password under Settings within an hour.</p>`,
    { heading: `One-time link for ${name}` },
  )
}

const lastOperatorPage = ({ name }: PersonRow) =>
  refusalPage(
    409,
    `${name} is the last operator`,
    html`Nothing was changed: nobody could manage people any more. Make somebody else an operator first. <a href="${HERE}">People and roles</a>`,
  )
