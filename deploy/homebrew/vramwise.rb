# The formula of a tap of one's own. `python tools/packages/formula.py URL dist/vramwise-0.1.0.tar.gz` fills in URL and
# SHA256 of a release; it was not tried with brew.
class Vramwise < Formula
  include Language::Python::Virtualenv

  desc "How much GPU memory a model needs, why, and what to change so that it fits"
  url "URL"
  sha256 "SHA256"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    virtualenv_create(libexec, "python3.13")
    system "python3.13", "-m", "pip", "--python=#{libexec}/bin/python", "install", buildpath
    bin.install_symlink libexec/"bin/vramwise"
    generate_completions_from_executable(bin/"vramwise", "completion", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match "weights", shell_output("#{bin}/vramwise estimate llama-3.1-8b --task load")
  end
end
