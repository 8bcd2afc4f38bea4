import { defineConfig, env, key } from 'oncehook'

// GitHub Sponsors. The header with the ID is not signed, and GitHub never delivers again by itself: after an outage press Redeliver.
export default defineConfig({
  sources: {
    github: { provider: 'github', secrets: env.list('GITHUB_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'sponsorship thanks',
      source: 'github',
      type: 'sponsorship.created',
      // A sponsor who comes back is the same sponsorship at another time.
      email: ({ sponsorship }) =>
        sponsorship.sponsor?.email && {
          key: key('sponsorship', sponsorship.node_id, 'created', sponsorship.created_at),
          to: sponsorship.sponsor.email,
          from_email: 'hello@example.com',
          subject: 'Thank you for sponsoring us',
          html_body: '<p>You are keeping this project alive.</p>',
        },
    },
    {
      name: 'sponsorship ended',
      source: 'github',
      type: 'sponsorship.cancelled',
      email: ({ sponsorship }) =>
        sponsorship.sponsor?.email && {
          key: key('sponsorship', sponsorship.node_id, 'cancelled', sponsorship.created_at),
          to: sponsorship.sponsor.email,
          from_email: 'hello@example.com',
          subject: 'Your sponsorship has ended',
          html_body: '<p>Thank you for your support so far.</p>',
        },
    },
  ],
})
