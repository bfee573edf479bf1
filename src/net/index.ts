/** The mail of proxies, for the check: everything else of this room has the doors of its folders. */
export { MailedCircle, newMail, serveCircle } from './world/proxy/mail.js';
