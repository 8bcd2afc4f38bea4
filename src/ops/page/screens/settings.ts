import { type Request, type Response, Router } from 'express'
import { ipKeyGenerator } from 'express-rate-limit'
import { z } from 'zod'
import { newPassword, PasswordsBusyError } from '../../passwords.ts'
import { personSettings, readPerson, saveSettings } from '../../people.ts'
import { endOtherSessions, listOwnSessions, tokenOfCookies } from '../../sessions.ts'
import { mustSayPassword, setOwnPassword } from '../../sign-in.ts'
import { countText, durationText } from '../../words.ts'
import { type ActionAnswer, addAction, type Problem } from '../action.ts'
import { actionForm, errorSummary, field, select, table } from '../components.ts'
import { attribute, type Html, html } from '../html.ts'
import type { Page } from '../layout.ts'
import { isSecure, screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { settingsPage } from '../settings-frame.ts'
import type { Visit } from '../visit.ts'
import { settingsConfigurationScreen } from './settings-configuration.ts'
import { settingsPeopleScreen } from './settings-people.ts'
import { settingsTokensScreen } from './settings-tokens.ts'
import { settingsViewsScreen } from './settings-views.ts'

const HERE = '/ops/settings'
const BUSY_SECONDS = 2
const everybody = ['reader', 'operator'] as const

const lookForm = z
  .strictObject({
    theme: personSettings.shape.theme,
    time_zone: personSettings.shape.timeZone,
    shortcuts: z.literal('on').optional(),
  })
  .transform(({ theme, time_zone, shortcuts }) => ({ theme, timeZone: time_zone, shortcuts: shortcuts === 'on' }))
const passwordForm = z
  .strictObject({
    current_password: z.string().max(10_000).default(''),
    new_password: newPassword,
    new_password_again: z.string().max(10_000),
  })
  .refine((given) => given.new_password === given.new_password_again.normalize('NFKC'), {
    path: ['new_password_again'],
    message: 'is not the same as the new password',
  })

/** How a person wants the page, their password and sessions; then people, tokens, views and the configuration. */
export function settingsScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const tokenOf = (req: Request) => tokenOfCookies(req.get('cookie'), isSecure(req, deps.publicUrl)) ?? ''
  const page = (visit: Visit, req: Request, problems: Problem[] = [], status = 200) =>
    ownPage(deps, visit, tokenOf(req), problems, status)

  router.get(
    HERE,
    screen(deps, (visit, req) => page(visit, req)),
  )
  addAction(router, deps, `${HERE}/look`, {
    roles: everybody,
    body: lookForm,
    async handle({ body, visit }) {
      await saveSettings(deps.pool, visit.session.person.id, body)
      return { to: HERE, notice: { text: 'Saved.' } }
    },
    invalid: ({ problems, visit, req }) => page(visit, req, problems, 400),
  })
  addAction(router, deps, `${HERE}/password`, {
    roles: everybody,
    body: passwordForm,
    handle: ({ body, visit, req, res }) => changePassword(body, visit, req, res),
    invalid: ({ problems, visit, req }) => page(visit, req, problems, 400),
  })
  addAction(router, deps, `${HERE}/sign-out-others`, {
    roles: everybody,
    body: z.strictObject({}),
    async handle({ req }) {
      const ended = await endOtherSessions(deps.pool, tokenOf(req))
      return {
        to: HERE,
        notice: { text: ended === 0 ? 'You were signed in here only.' : `Signed out elsewhere: ${countText(ended)}.` },
      }
    },
  })

  async function changePassword(
    { current_password, new_password }: z.output<typeof passwordForm>,
    visit: Visit,
    req: Request,
    res: Response,
  ): Promise<ActionAnswer> {
    const set = await setOwnPassword(deps, visit.session, {
      token: tokenOf(req),
      current: current_password,
      next: new_password,
      address: ipKeyGenerator(req.ip ?? ''),
      now: deps.now(),
    }).catch((error: unknown) => {
      if (error instanceof PasswordsBusyError) return { outcome: 'busy' as const }
      throw error
    })
    const again = async (status: number, message: string): Promise<ActionAnswer> => ({
      page: await page(visit, req, [{ path: 'current_password', message }], status),
    })
    if (set.outcome === 'done') return { to: HERE, notice: { text: 'Your password is set. You are signed out everywhere else.' } }
    if (set.outcome === 'refused') return again(400, 'is wrong')
    if (set.outcome === 'changed') return again(409, 'has been changed meanwhile, by you elsewhere or for you')
    if (set.outcome === 'busy') {
      res.set('Retry-After', String(BUSY_SECONDS))
      return again(503, 'could not be checked, too many are at this moment; try again')
    }
    res.set('Retry-After', String(set.retryAfterSeconds))
    return again(429, `has been tried too often; try again in ${durationText(set.retryAfterSeconds * 1_000)}`)
  }

  router.use(settingsPeopleScreen(deps), settingsTokensScreen(deps), settingsViewsScreen(deps), settingsConfigurationScreen(deps))
  return router
}

async function ownPage(
  { reads, now }: ScreenDeps,
  visit: Visit,
  token: string,
  problems: Problem[],
  status: number,
): Promise<Page> {
  const { session, view } = visit
  const { theme, timeZone, shortcuts } = session.person.settings
  const sessions = await listOwnSessions(reads, token)
  const person = await readPerson(reads, session.person.id)
  const look = actionForm({
    action: `${HERE}/look`,
    byApi: 'personal',
    fields: html`${select({
      name: 'theme',
      label: 'Theme',
      value: theme,
      choices: [
        ['system', 'As the system has it'],
        ['light', 'Light'],
        ['dark', 'Dark'],
      ],
    })}
${field({ name: 'time_zone', label: 'Time zone', value: timeZone, required: true, maxLength: 64, problems, list: 'zones', hint: 'Such as Europe/Berlin. Exact times are in UTC beside it.' })}
<datalist id="zones">${Intl.supportedValuesOf('timeZone').map((zone) => html`<option value="${zone}">`)}</datalist>
<div class="field"><label><input type="checkbox" name="shortcuts" value="on"${attribute('checked', shortcuts)}> Keyboard shortcuts</label></div>
<button class="main">Save</button>`,
  })
  return settingsPage(
    HERE,
    html`${errorSummary(problems)}<p>${session.person.name}, role ${session.person.role}.</p>${look}
<h2>Password</h2>${passwordFields(mustSayPassword(session, person?.has_password ?? false, now()), problems)}
<h2>Where you are signed in</h2>${table({
      caption: 'Sessions end after 12 hours without a request, and after 7 days',
      head: ['Session', 'Signed in', 'By', 'Last request', 'Ends'],
      rows: sessions.map(
        ({ is_this, started_at, started_by, last_seen_at, ends_at }) =>
          html`<tr><td class="first">${is_this ? 'this one' : 'elsewhere'}</td><td data-label="Signed in">${view.time(started_at)}</td><td>${started_by === 'link' ? 'a one-time link' : 'password'}</td><td data-label="Last request">${view.time(last_seen_at)}</td><td data-label="Ends">${view.time(ends_at)}</td></tr>`,
      ),
      className: 'stack',
    })}${
      sessions.length > 1 &&
      actionForm({
        action: `${HERE}/sign-out-others`,
        byApi: 'personal',
        fields: html`<button>Sign out everywhere else</button>`,
      })
    }`,
    { status },
  )
}

function passwordFields(saysCurrent: boolean, problems: Problem[]): Html {
  const about = (name: string, label: string, autocomplete: string, hint?: string) =>
    field({ name, label, type: 'password', required: true, maxLength: 1_000, autocomplete, problems, ...(hint && { hint }) })
  return actionForm({
    action: `${HERE}/password`,
    byApi: 'personal',
    fields: html`${saysCurrent && about('current_password', 'Password now', 'current-password')}
${about('new_password', 'New password', 'new-password', 'At least 12 characters; nothing else is asked of it.')}
${about('new_password_again', 'New password again', 'new-password')}<button class="main">Set password</button>`,
  })
}
