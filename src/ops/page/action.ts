import express, { type Request, type Response, type Router } from 'express'
import { z } from 'zod'
import { problemsOf } from '../filters.ts'
import type { PersonRole } from '../people.ts'
import { html } from './html.ts'
import type { Page } from './layout.ts'
import { multipartFields } from './multipart.ts'
import { type PageServer, refusalPage, sendPage } from './page.ts'
import type { Notice } from './shell.ts'
import { answerSubmission, freeSubmission, takeSubmission } from './submissions.ts'
import { actorOf, sameOrigin, type Visit, visitOf } from './visit.ts'

/** What a form's handler says: done, and where to go on; or a page, with nothing changed. */
export type ActionAnswer = { to: string; notice?: Notice } | { page: Page }

export interface Action<Body extends z.ZodType> {
  roles: readonly PersonRole[]
  body: Body
  handle(input: { body: z.output<Body>; visit: Visit; actor: string; req: Request; res: Response }): Promise<ActionAnswer>
  /** The form again with what was typed and what is wrong with it; without this a page that only says what is wrong. */
  invalid?(input: { problems: Problem[]; given: Given; visit: Visit; req: Request }): Promise<Page> | Page
  /** Bytes of the body; 100,000. */
  limit?: number
  /** Its form carries a file. */
  withFile?: boolean
}

export interface Problem {
  path: string
  message: string
}
/** The form's fields as they were sent. */
export type Given = Readonly<Record<string, unknown>>

const formId = z.uuid()

/**
 * Mounts what a form does: only by POST, from a page of ours, by a person with the role, once for each ID of a form. It is answered by
 * 303 to a page that says what was done; a repeat gets the same answer. Fields that the schema doesn't name are refused.
 */
export function addAction<Body extends z.ZodType>(
  router: Router,
  server: PageServer,
  path: string,
  { roles, body: schema, handle, invalid, limit = 100_000, withFile = false }: Action<Body>,
): void {
  const refuse = (req: Request, res: Response, page: Page) => sendPage(server, req, res, page)
  router
    .route(path)
    .post(
      sameOrigin(server.publicUrl, (req, res) => refuse(req, res, foreignPage)),
      // Before its body is read: who may not do it must not make us read much.
      (req, res, next) => {
        const { role } = visitOf(res).session.person
        if (roles.includes(role)) return next()
        return refuse(
          req,
          res,
          refusalPage(403, 'You may not do this', `It needs the role ${roles.join(' or ')}; yours is ${role}.`),
        )
      },
      withFile
        ? express.raw({ type: 'multipart/form-data', limit })
        : express.urlencoded({ extended: false, limit, parameterLimit: 2_000 }),
      async (req, res) => {
        const visit = visitOf(res)
        const { name } = visit.session.person
        const { form, ...given } = withFile ? multipartFields(req) : ((req.body ?? {}) as Record<string, unknown>)
        const id = formId.safeParse(form)
        if (!id.success)
          return refuse(req, res, refusalPage(400, 'This form is incomplete', 'Reload the page that it stands on.'))
        const parsed = schema.safeParse(given)
        if (!parsed.success) {
          const problems = problemsOf(parsed.error)
          return refuse(req, res, await (invalid?.({ problems, given, visit, req }) ?? problemsPage(problems)))
        }

        const submission = await takeSubmission(server.pool, { form: id.data, person: name, action: req.baseUrl + req.path })
        if (submission.outcome === 'answered') return res.redirect(303, withDone(submission.location, id.data))
        if (submission.outcome === 'running') return refuse(req, res, runningPage)
        const answer = await handle({ body: parsed.data, visit, actor: actorOf(visit), req, res })
        if ('page' in answer) {
          await freeSubmission(server.pool, id.data)
          return refuse(req, res, answer.page)
        }
        await answerSubmission(server.pool, id.data, answer.to, answer.notice)
        res.redirect(303, withDone(answer.to, id.data))
      },
    )
    .all((req, res) =>
      refuse(req, res.set('Allow', 'POST'), refusalPage(405, 'Nothing is done by this address', 'Use the form on its page.')),
    )
}

const foreignPage = refusalPage(
  403,
  'This was not sent from a page of ours',
  'Nothing was changed. Open the page and use its own form.',
)
const runningPage = refusalPage(
  409,
  'This form was sent already',
  'It is being carried out, or the service stopped meanwhile. Look at what it was about before you send it again.',
)

/** The answer's page, told whose answer it shows. */
function withDone(to: string, form: string): string {
  const [path = '', hash] = to.split('#', 2)
  return `${path}${path.includes('?') ? '&' : '?'}done=${form}${hash === undefined ? '' : `#${hash}`}`
}

function problemsPage(problems: readonly Problem[]): Page {
  return {
    title: 'Error: nothing was changed',
    status: 400,
    main: html`<h1>There is a problem</h1><p>Nothing was changed.</p>
<ul>${problems.map(({ path, message }) => html`<li>${path}: ${message}</li>`)}</ul>`,
  }
}
